alter table digestd_attempts add column batch text; -- what it went in; null where it went alone
create index digestd_attempts_batch on digestd_attempts (batch, key) where batch is not null;

-- Messages that go in one request. Each member keeps its attempt; what is here is what they share.
create table digestd_batches (
    id            text primary key,          -- the request's key at the provider
    campaign      text not null,
    period        text not null,
    members       text not null,             -- their keys, in the order of the request
    rules         text not null,             -- those that every member was started with
    request       blob,                      -- private; null once it cannot go again
    request_hash  text not null,
    begun_at      integer not null,
    repeater      text,                      -- who sends it again now
    repeats_until integer
) strict;
create index digestd_batches_run on digestd_batches (campaign, period);
