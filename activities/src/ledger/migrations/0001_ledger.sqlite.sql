-- The ledger on SQLite. Times are milliseconds since 1970 (UTC), by this database's clock.

create table digestd_meta (
    name  text primary key,
    value text not null
) strict;

-- One campaign in one period. A hold may create the row before the run exists.
create table digestd_runs (
    campaign      text not null,
    period        text not null,
    state         text not null,             -- planned, freezing, frozen, dispatching, closed, missed
    tick          integer,                   -- null where a person named the period
    selected_at   integer,
    period_start  integer,
    period_end    integer,
    useful_until  integer,
    expected      integer,                   -- count(*) of the customers query when the freeze began
    freeze_after  text,                      -- the last customer id read by the freeze
    selected      integer not null default 0,
    unkeyed       integer not null default 0,
    seen          integer not null default 0,
    frozen_at     integer,
    closed_at     integer,
    held_since    integer,
    held_because  text,
    held_by       text,
    held_ms       integer not null default 0, -- all earlier holds together
    resumed_at    integer,
    cancelled_at  integer,
    reason        text,                      -- why it was missed
    primary key (campaign, period)
) strict;

-- The selection and the state of each operation. `machine` is what the decision core keeps; the
-- columns beside it are for queries and always written together with it.
create table digestd_operations (
    key          text primary key, -- bytes in order, whatever the database's locale
    campaign     text not null,
    period       text not null,
    position     integer not null,           -- order within the run, from 1
    customer     text not null,
    state        text not null,
    class        text,
    since        integer not null,
    attempts     integer not null default 0,
    at_rest      integer not null default 0,
    contradicted integer not null default 0,
    undelivered  integer not null default 0,
    cleanup_failed integer not null default 0,
    machine      text not null,
    frozen_at    integer not null,
    enqueued_at  integer,
    content_hash text,
    message_id   text
) strict;
create unique index digestd_operations_position on digestd_operations (campaign, period, position);
create index digestd_operations_state on digestd_operations (campaign, state, key);
create index digestd_operations_customer on digestd_operations (campaign, customer);
create index digestd_operations_first on digestd_operations (campaign, period)
    where enqueued_at is not null and state in ('selected', 'sending');
create index digestd_operations_unfinished on digestd_operations (campaign, key)
    where state in ('selected', 'sending', 'retrying', 'unknown', 'sent');
create index digestd_operations_open on digestd_operations (campaign, period, position)
    where at_rest = 0;

create table digestd_attempts (
    key          text not null,
    number       integer not null,           -- running number over all generations
    campaign     text not null,
    period       text not null,
    generation   integer not null,
    ordinal      integer not null,
    token        text,                       -- who may hand over; null for a try without an intent
    provider     text,
    account      text,
    begun_at     integer,                    -- the intent; null for a try without one
    lease_ends   integer,
    settles_at   integer,
    content_hash text,
    decided_at   integer,                    -- closed, or found to be without an answer
    outcome      text,                       -- accepted, not_sent; null while in doubt
    class        text,
    code         text,
    message_id   text,
    primary key (key, number),
    unique (key, generation, ordinal)
) strict;
create index digestd_attempts_decided on digestd_attempts (campaign, period, decided_at);

create table digestd_digest_rows (
    key  text primary key,
    data text not null                       -- the customer's columns and rows, frozen
) strict;

create table digestd_messages (
    key          text primary key,
    message      text not null,
    mime         blob not null,
    content_hash text not null
) strict;

create table digestd_dead_letters (
    key         text not null,
    generation  integer not null,
    class       text not null,
    code        text not null,
    at          integer not null,
    replayed_at integer,
    primary key (key, generation)
) strict;

-- The audit: every transition and every decision of a person, never changed.
create table digestd_decisions (
    id         integer primary key autoincrement,
    campaign   text not null,
    period     text not null,
    key        text,
    at         integer not null,
    event      text not null,
    from_state text,
    to_state   text,
    class      text,
    decided_by text not null,
    reason     text,
    note       text
) strict;
create index digestd_decisions_key on digestd_decisions (key, id);
create index digestd_decisions_run on digestd_decisions (campaign, period, id);

create table digestd_provider_events (
    provider text not null,
    event_id text not null,
    key      text,
    finding  text not null,
    at       integer not null,
    told_at  integer,
    primary key (provider, event_id)
) strict;
create index digestd_provider_events_key on digestd_provider_events (key);

create table digestd_selection_faults (
    campaign text not null,
    period   text not null,
    customer text,
    kind     text not null,
    at       integer not null
) strict;
create index digestd_selection_faults_run on digestd_selection_faults (campaign, period);

create table digestd_pace (
    name      text primary key,
    next_slot integer not null               -- microseconds since 1970
) strict;
