alter table operations add column alias text collate "C";
create unique index operations_alias on operations (alias);

alter table provider_events add column carried text; -- the key, or its alias, as it came
create index provider_events_untold on provider_events (at) where told_at is null;
