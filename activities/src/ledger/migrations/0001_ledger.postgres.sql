-- The ledger on PostgreSQL, in the schema of the search path. Times are milliseconds since 1970 (UTC), by this database's clock.

create table meta (
    name  text primary key,
    value text not null
);

-- One campaign in one period. A hold may create the row before the run exists.
create table runs (
    campaign      text not null,
    period        text not null,
    state         text not null,             -- planned, freezing, frozen, dispatching, closed, missed
    tick          bigint,                   -- null where a person named the period
    selected_at   bigint,
    period_start  bigint,
    period_end    bigint,
    useful_until  bigint,
    expected      bigint,                   -- count(*) of the customers query when the freeze began
    freeze_after  text,                      -- the last customer id read by the freeze
    selected      bigint not null default 0,
    unkeyed       bigint not null default 0,
    seen          bigint not null default 0,
    frozen_at     bigint,
    closed_at     bigint,
    held_since    bigint,
    held_because  text,
    held_by       text,
    held_ms       bigint not null default 0, -- all earlier holds together
    resumed_at    bigint,
    cancelled_at  bigint,
    reason        text,                      -- why it was missed
    primary key (campaign, period)
);

-- The selection and the state of each operation. `machine` is what the decision core keeps; the
-- columns beside it are for queries and always written together with it.
create table operations (
    key          text collate "C" primary key, -- bytes in order, whatever the database's locale
    campaign     text not null,
    period       text not null,
    position     bigint not null,           -- order within the run, from 1
    customer     text not null,
    state        text not null,
    class        text,
    since        bigint not null,
    attempts     bigint not null default 0,
    at_rest      bigint not null default 0,
    contradicted bigint not null default 0,
    undelivered  bigint not null default 0,
    cleanup_failed bigint not null default 0,
    machine      text not null,
    frozen_at    bigint not null,
    enqueued_at  bigint,
    content_hash text,
    message_id   text
);
create unique index operations_position on operations (campaign, period, position);
create index operations_state on operations (campaign, state, key);
create index operations_customer on operations (campaign, customer);
create index operations_first on operations (campaign, period)
    where enqueued_at is not null and state in ('selected', 'sending');
create index operations_unfinished on operations (campaign, key)
    where state in ('selected', 'sending', 'retrying', 'unknown', 'sent');
create index operations_open on operations (campaign, period, position)
    where at_rest = 0;

create table attempts (
    key          text collate "C" not null,
    number       bigint not null,           -- running number over all generations
    campaign     text not null,
    period       text not null,
    generation   bigint not null,
    ordinal      bigint not null,
    token        text,                       -- who may hand over; null for a try without an intent
    provider     text,
    account      text,
    begun_at     bigint,                    -- the intent; null for a try without one
    lease_ends   bigint,
    settles_at   bigint,
    content_hash text,
    decided_at   bigint,                    -- closed, or found to be without an answer
    outcome      text,                       -- accepted, not_sent; null while in doubt
    class        text,
    code         text,
    message_id   text,
    primary key (key, number),
    unique (key, generation, ordinal)
);
create index attempts_decided on attempts (campaign, period, decided_at);

create table digest_rows (
    key  text collate "C" primary key,
    data text not null                       -- the customer's columns and rows, frozen
);

create table messages (
    key          text collate "C" primary key,
    message      text not null,
    mime         bytea not null,
    content_hash text not null
);

create table dead_letters (
    key         text collate "C" not null,
    generation  bigint not null,
    class       text not null,
    code        text not null,
    at          bigint not null,
    replayed_at bigint,
    primary key (key, generation)
);

-- The audit: every transition and every decision of a person, never changed.
create table decisions (
    id         bigint generated always as identity primary key,
    campaign   text not null,
    period     text not null,
    key        text collate "C",
    at         bigint not null,
    event      text not null,
    from_state text,
    to_state   text,
    class      text,
    decided_by text not null,
    reason     text,
    note       text
);
create index decisions_key on decisions (key, id);
create index decisions_run on decisions (campaign, period, id);

create table provider_events (
    provider text not null,
    event_id text not null,
    key      text collate "C",
    finding  text not null,
    at       bigint not null,
    told_at  bigint,
    primary key (provider, event_id)
);
create index provider_events_key on provider_events (key);

create table selection_faults (
    campaign text not null,
    period   text not null,
    customer text,
    kind     text not null,
    at       bigint not null
);
create index selection_faults_run on selection_faults (campaign, period);

create table pace (
    name      text primary key,
    next_slot bigint not null               -- microseconds since 1970
);
