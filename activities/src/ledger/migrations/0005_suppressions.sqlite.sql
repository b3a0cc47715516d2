-- Customers who are not written to any more, as providers told. No address is ever in here.
create table digestd_suppressions (
    campaign text not null,
    customer text not null,
    reason   text not null,              -- hard_bounce, complaint, opt_out
    since    integer not null,
    key      text not null,              -- the operation whose message the event was about
    provider text not null,
    event_id text not null,
    primary key (campaign, customer)
) strict;
create index digestd_suppressions_key on digestd_suppressions (campaign, key);

alter table digestd_provider_events add column suppresses text; -- the reason, if it suppresses
alter table digestd_provider_events add column fault text;      -- why it could not be told, ever
create index digestd_provider_events_fault on digestd_provider_events (at)
    where fault is not null;

-- Events are told in this order.
drop index digestd_provider_events_untold;
create index digestd_provider_events_untold on digestd_provider_events (at, event_id)
    where told_at is null;
