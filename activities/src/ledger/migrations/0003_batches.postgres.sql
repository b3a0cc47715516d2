alter table attempts add column batch text; -- what it went in; null where it went alone
create index attempts_batch on attempts (batch, key) where batch is not null;

-- Messages that go in one request. Each member keeps its attempt; what is here is what they share.
create table batches (
    id            text primary key,          -- the request's key at the provider
    campaign      text not null,
    period        text not null,
    members       text not null,             -- their keys, in the order of the request
    rules         text not null,             -- those that every member was started with
    request       bytea,                     -- private; null once it cannot go again
    request_hash  text not null,
    begun_at      bigint not null,
    repeater      text,                      -- who sends it again now
    repeats_until bigint
);
create index batches_run on batches (campaign, period);
