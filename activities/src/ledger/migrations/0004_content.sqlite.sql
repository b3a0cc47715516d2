-- Whether somebody else's message had the same content, where a provider is asked by content.
create index digestd_attempts_content on digestd_attempts (content_hash)
    where provider = 'twilio';
create index digestd_attempts_unrecorded on digestd_attempts (settles_at)
    where provider = 'unrecorded';
