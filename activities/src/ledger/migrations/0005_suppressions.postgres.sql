-- Customers who are not written to any more, as providers told. No address is ever in here.
create table suppressions (
    campaign text not null,
    customer text collate "C" not null,
    reason   text not null,              -- hard_bounce, complaint, opt_out
    since    bigint not null,
    key      text collate "C" not null,  -- the operation whose message the event was about
    provider text not null,
    event_id text not null,
    primary key (campaign, customer)
);
create index suppressions_key on suppressions (campaign, key);

alter table provider_events add column suppresses text; -- the reason, if it suppresses
alter table provider_events add column fault text;      -- why it could not be told, ever
create index provider_events_fault on provider_events (at) where fault is not null;

-- Events are told in this order.
drop index provider_events_untold;
create index provider_events_untold on provider_events (at, event_id)
    where told_at is null;
