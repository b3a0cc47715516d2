-- Whether somebody else's message had the same content, where a provider is asked by content.
create index attempts_content on attempts (content_hash)
    where provider = 'twilio';
create index attempts_unrecorded on attempts (settles_at)
    where provider = 'unrecorded';
