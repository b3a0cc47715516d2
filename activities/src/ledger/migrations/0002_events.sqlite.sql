alter table digestd_operations add column alias text;
create unique index digestd_operations_alias on digestd_operations (alias);

alter table digestd_provider_events add column carried text; -- the key, or its alias, as it came
create index digestd_provider_events_untold on digestd_provider_events (at) where told_at is null;
