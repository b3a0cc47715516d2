use super::*;
use digest_activities::message::Redacted;
use digest_workflows::operation::FailureClass;
use jiff::SignedDuration;

const TEMPLATE: &str = include_str!("../../templates/digestd.toml");

/// The least that a configuration must say.
const LEAST: &str = r#"[source]
customers = "select id as customer_id, email as address from customers"
still_wanted = "select 1 from customers where id = :customer_id"
[campaign]
timezone = "Europe/Berlin"
[message]
from = "Shop <digest@shop.example>"
[provider]
kind = "smtp"
url = "smtp://127.0.0.1:2525"
"#;

/// Every key with another value than its default.
const OTHER: &str = r#"
[engine]
address = "temporal:7233"
namespace = "shop"
task_queue = "mail"
ui_url = "https://ui.shop.example/"
[ledger]
url = "postgres://digestd@db/digestd"
schema = "weekly"
[source]
url = "postgres://shop@db/shop"
customers = "select 1"
rows = "select 2"
still_wanted = "select 3"
cleanup = "delete 4"
cleanup_max_rows = 5
[campaign]
name = "reminder"
channel = "sms"
cron = "30 10 * * TUE"
timezone = "America/Santiago"
catch_up = "1h"
late_start = "2h"
useful_for = "3h"
[message]
from = "+15005550006"
text = "sms.txt"
unsubscribe_url = "https://shop.example/u"
when_empty = "send"
[provider]
kind = "twilio"
account_sid = "AC1"
validity = "4h"
rate_per_second = 0.5
timeout = "10s"
lease = "5m"
settle = "3m"
[sandbox]
seed = 7
[dispatch]
page_size = 50
in_flight = 60
[worker]
concurrency = 7
shutdown_grace = "11s"
listening = 8
[retry.rate_limited]
base = "1s"
cap = "2s"
multiplier = 3
jitter = 0
max_attempts = 4
max_age = "5s"
[retry.cleanup]
max_attempts = 6
[unknown]
lookup_every = "2m"
escalate_after = "20m"
keep_rows_for = "3d"
[hold]
identical_schema_failures = 2
unknowns_in_a_row = 3
[replay]
max_keys = 4
[retention]
content = "5d"
records = "6d"
[http]
listen = "0.0.0.0:80"
user_header = "X-Forwarded-User"
trusted_proxies = ["10.0.0.5", "::1"]
[webhooks]
listen = "0.0.0.0:8090"
public_url = "https://hooks.shop.example"
"#;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("/etc/shop/digestd.toml"))
}

fn problems(text: &str) -> Vec<String> {
    match parse(text) {
        Err(ConfigError::Invalid { problems, .. }) => {
            problems.iter().map(ToString::to_string).collect()
        }
        other => panic!("it was answered with {other:?}"),
    }
}

/// The one problem of [`LEAST`] with `line` added to its `table`.
fn problem_of(table: &str, line: &str) -> String {
    let text = if LEAST.contains(&format!("[{table}]\n")) {
        LEAST.replace(&format!("[{table}]\n"), &format!("[{table}]\n{line}\n"))
    } else {
        format!("{LEAST}[{table}]\n{line}\n")
    };
    let found = problems(&text);
    assert_eq!(found.len(), 1, "{table}: {line} has {found:#?}");
    found.into_iter().next().unwrap()
}

fn without_lines(config: Config) -> Config {
    Config { lines: Lines::new(), ..config }
}

#[test]
fn the_least_configuration_takes_every_default() {
    let config = parse(LEAST).unwrap();
    assert_eq!(config.engine.address, None);
    assert_eq!(config.engine.task_queue, "digest");
    assert_eq!(config.campaign.name, "digest");
    assert_eq!(config.campaign.useful_for, SignedDuration::from_hours(120));
    assert_eq!(config.message.subject, Some("/etc/shop/templates/subject.txt".into()));
    assert_eq!(config.message.when_empty, WhenEmpty::Send, "without rows");
    assert_eq!(config.rules(), Rules::default());
    assert_eq!((config.dispatch.page_size, config.dispatch.in_flight), (100, 500));
    assert_eq!(config.retention.records, SignedDuration::from_hours(400 * 24));
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:8080");
}

#[test]
fn the_file_that_init_writes_says_exactly_the_defaults() {
    let yours = [
        "source.customers",
        "source.rows",
        "source.still_wanted",
        "campaign.timezone",
        "message.from",
        "message.html",
        "provider.kind",
        "provider.url",
    ];
    let mut bare: toml::Table = TEMPLATE.parse().unwrap();
    let mut removed = 0;
    for (name, table) in &mut bare {
        let table = table.as_table_mut().unwrap();
        let before = table.len();
        table.retain(|key, _| yours.contains(&format!("{name}.{key}").as_str()));
        removed += before - table.len();
    }
    assert!(removed > 30, "only {removed} keys were shown with a default");
    let shown = parse(TEMPLATE).unwrap();
    let default = parse(&bare.to_string()).unwrap();
    assert_eq!(without_lines(shown), without_lines(default));
}

#[test]
fn every_key_that_the_file_of_init_comments_out_can_be_used() {
    let mut used = 0;
    let mut text = String::new();
    for line in TEMPLATE.lines() {
        let key = ["address", "namespace", "schema", "url", "unsubscribe_url", "settle"]
            .iter()
            .any(|key| line.starts_with(&format!("# {key} = ")));
        used += usize::from(key);
        text.push_str(if key { &line[2..] } else { line });
        text.push('\n');
    }
    assert_eq!(used, 6);
    let config = parse(&text).unwrap();
    assert_eq!(config.engine.address.as_deref(), Some("127.0.0.1:7233"));
    assert_eq!(config.rules(), Rules::default());
}

#[test]
fn every_key_of_what_is_sent_is_read_into_its_own_place() {
    let config = parse(OTHER).unwrap();
    let seconds = SignedDuration::from_secs;
    assert_eq!(
        config.engine,
        Engine {
            address: Some("temporal:7233".to_owned()),
            namespace: Some("shop".to_owned()),
            task_queue: "mail".to_owned(),
            ui_url: "https://ui.shop.example".to_owned(),
        }
    );
    assert_eq!(config.ledger.schema, "weekly");
    assert_eq!(
        config.source,
        Source {
            url: Some("postgres://shop@db/shop".to_owned()),
            customers: "select 1".to_owned(),
            rows: Some("select 2".to_owned()),
            still_wanted: "select 3".to_owned(),
            cleanup: Some("delete 4".to_owned()),
            cleanup_max_rows: 5,
        }
    );
    assert_eq!(
        config.campaign,
        Campaign {
            name: "reminder".to_owned(),
            channel: Channel::Sms,
            cron: "30 10 * * TUE".to_owned(),
            timezone: "America/Santiago".to_owned(),
            catch_up: seconds(3_600),
            late_start: seconds(7_200),
            useful_for: seconds(10_800),
        }
    );
    assert_eq!(
        config.message,
        Message {
            from: "+15005550006".to_owned(),
            subject: None,
            text: "/etc/shop/sms.txt".into(),
            html: None,
            unsubscribe_url: Some("https://shop.example/u".to_owned()),
            when_empty: WhenEmpty::Send,
        }
    );
}

#[test]
fn every_key_of_how_it_is_sent_is_read_into_its_own_place() {
    let config = parse(OTHER).unwrap();
    let seconds = SignedDuration::from_secs;
    assert_eq!(
        config.provider,
        Provider {
            kind: ProviderKind::Twilio,
            url: None,
            rate_per_second: 0.5,
            timeout: seconds(10),
            lease: seconds(300),
            settle: seconds(180),
            batch: None,
            ca_file: None,
            own: ProviderOwn {
                account_sid: Some("AC1".to_owned()),
                validity: Some(seconds(4 * 3_600)),
                ..ProviderOwn::default()
            },
        }
    );
    assert_eq!(config.webhooks.listen.unwrap().to_string(), "0.0.0.0:8090");
    assert_eq!(config.webhooks.public_url.as_deref(), Some("https://hooks.shop.example"));
    assert_eq!(config.sandbox["seed"].as_integer(), Some(7));
    assert_eq!(config.dispatch, Dispatch { page_size: 50, in_flight: 60 });
    let worker = Worker { concurrency: 7, shutdown_grace: seconds(11), listening: 8 };
    assert_eq!(config.worker, worker);
    let policy = config.rules().retry(FailureClass::RateLimited);
    assert_eq!((policy.base, policy.cap, policy.max_age), (seconds(1), seconds(2), seconds(5)));
    assert_eq!((policy.multiplier, policy.jitter, policy.max_attempts), (3.0, 0.0, 4));
    assert_eq!(config.rules().cleanup.max_attempts, 6);
    assert_eq!(config.rules().cleanup.base, Rules::default_cleanup().base);
    assert_eq!(config.unknown.lookup_every, seconds(120));
    assert_eq!(config.unknown.escalate_after, seconds(1_200));
    assert_eq!(config.unknown.keep_rows_for, SignedDuration::from_hours(72));
    assert_eq!(config.hold, Hold { identical_schema_failures: 2, unknowns_in_a_row: 3 });
    assert_eq!(config.replay, Replay { max_keys: 4 });
    assert_eq!(config.retention.content, SignedDuration::from_hours(120));
    assert_eq!(config.http.listen.to_string(), "0.0.0.0:80");
    assert_eq!(config.http.user_header.as_ref().unwrap(), "x-forwarded-user");
    assert_eq!(config.http.trusted_proxies[1].to_string(), "::1");
}

#[test]
fn what_only_one_provider_takes_is_read_for_it_and_refused_for_any_other() {
    let text = |value: &str| Some(value.to_owned());
    let own = ProviderOwn::default;
    for (kind, line, expected) in [
        (
            "smtp",
            "ehlo_name = \"a.example\"",
            ProviderOwn { ehlo_name: text("a.example"), ..own() },
        ),
        (
            "postmark",
            "message_stream = \"digests\"",
            ProviderOwn { message_stream: text("digests"), ..own() },
        ),
        ("sendgrid", "lookup = true", ProviderOwn { lookup: true, ..own() }),
        ("mailgun", "domain = \"mg.example\"", ProviderOwn { domain: text("mg.example"), ..own() }),
        ("ses", "region = \"eu-west-1\"", ProviderOwn { region: text("eu-west-1"), ..own() }),
        (
            "ses",
            "configuration_set = \"weekly\"",
            ProviderOwn { configuration_set: text("weekly"), ..own() },
        ),
    ] {
        let of_kind = |kind: &str, url: &str| {
            let provider = format!("kind = \"{kind}\"\nurl = \"{url}\"\n{line}\n");
            LEAST.replace("kind = \"smtp\"\nurl = \"smtp://127.0.0.1:2525\"\n", &provider)
        };
        let url = if kind == "smtp" { "smtp://127.0.0.1:2525" } else { "https://api.example.com" };
        assert_eq!(parse(&of_kind(kind, url)).unwrap().provider.own, expected, "{kind}: {line}");
        let key = line.split(' ').next().unwrap();
        assert_eq!(
            problems(&of_kind("resend", "https://api.example.com")),
            [format!(
                "line 11, provider.{key}: only kind = \"{kind}\" takes this; leave the line out"
            )]
        );
    }
    let yes = LEAST.replace(
        "kind = \"smtp\"\nurl = \"smtp://127.0.0.1:2525\"\n",
        "kind = \"sendgrid\"\nlookup = \"yes\"\n",
    );
    assert_eq!(
        problems(&yes),
        ["line 10, provider.lookup: this must be true or false, not a text"]
    );
}

/// [`LEAST`] for text messages through Twilio, with these lines behind it.
fn by_twilio(message: &str, further: &str) -> String {
    LEAST
        .replace("[campaign]\n", "[campaign]\nchannel = \"sms\"\n")
        .replace("from = \"Shop <digest@shop.example>\"\n", message)
        .replace("kind = \"smtp\"\nurl = \"smtp://127.0.0.1:2525\"\n", "kind = \"twilio\"\n")
        + further
}

#[test]
fn text_messages_have_a_sender_and_a_text_and_a_provider_that_takes_them() {
    let from = "from = \"Shop\"\n";
    let config = parse(&by_twilio(from, "")).unwrap();
    assert_eq!((config.campaign.channel, config.message.subject), (Channel::Sms, None));
    for key in ["subject", "html"] {
        assert_eq!(
            problems(&by_twilio(&format!("{from}{key} = \"a.txt\"\n"), "")),
            [format!(
                "line 9, message.{key}: a text message (campaign.channel = \"sms\") has none; leave the line out"
            )]
        );
    }
    let [missing] = &problems(&by_twilio("", ""))[..] else { panic!("one problem") };
    assert!(missing.contains("message.from") && missing.contains("+15005550006"), "{missing}");
    let by_mail = by_twilio(from, "").replace("\"sms\"", "\"email\"");
    assert_eq!(
        problems(&by_mail),
        ["line 10, provider.kind: twilio does not deliver mail; change it or campaign.channel"]
    );
    for kind in ["resend", "postmark", "sendgrid", "mailgun", "ses"] {
        let [problem] =
            &problems(&by_twilio(from, "").replace("\"twilio\"", &format!("\"{kind}\"")))[..]
        else {
            panic!("one problem of {kind}")
        };
        assert!(problem.contains("does not deliver text messages"), "{problem}");
    }
    parse(&by_twilio(from, "").replace("\"twilio\"", "\"sandbox\"")).unwrap();
    for validity in ["4s", "601m"] {
        let problem = problems(&by_twilio(from, &format!("validity = \"{validity}\"\n")));
        assert!(problem[0].contains("between 5s and 10h"), "{problem:?}");
    }
}

#[test]
fn twilio_is_told_where_to_call_and_nobody_else() {
    let with = |lines: &str| by_twilio("from = \"Shop\"\n", &format!("[webhooks]\n{lines}"));
    let listen = "listen = \"127.0.0.1:8090\"\n";
    let public = |url: &str| format!("public_url = \"{url}\"\n");
    let good = public("https://hooks.shop.example/digest/");
    parse(&with(&format!("{listen}{good}"))).unwrap();
    parse(&with(&format!("{listen}{}", public("http://127.0.0.1:8090")))).unwrap();
    let [missing] = &problems(&with(listen))[..] else { panic!("one problem") };
    assert!(missing.contains("webhooks.public_url: this is missing"), "{missing}");
    let [missing] = &problems(&with(&good))[..] else { panic!("one problem") };
    assert!(missing.contains("webhooks.listen: this is missing"), "{missing}");
    for (url, why) in [
        ("hooks.shop.example", "this is not a URL"),
        ("http://hooks.shop.example", "does not begin with https://"),
        ("https://user@hooks.shop.example", "more than scheme, host and path"),
        ("https://hooks.shop.example/?a=b", "more than scheme, host and path"),
        ("https://hooks.shop.example/#a", "more than scheme, host and path"),
    ] {
        let [problem] = &problems(&with(&format!("{listen}{}", public(url))))[..] else {
            panic!("one problem of {url}")
        };
        assert!(problem.contains(why) && problem.contains("webhooks.public_url"), "{problem}");
    }
    let other = format!("{LEAST}[webhooks]\n{listen}{good}");
    let [problem] = &problems(&other)[..] else { panic!("one problem") };
    assert!(problem.contains("only kind = \"twilio\" takes this"), "{problem}");
}

#[test]
fn only_ses_has_topics_and_its_webhooks_need_one() {
    let of_kind = |kind: &str, webhooks: &str| {
        let provider = format!("kind = \"{kind}\"\nurl = \"https://api.example.com\"\n");
        let text = LEAST.replace("kind = \"smtp\"\nurl = \"smtp://127.0.0.1:2525\"\n", &provider);
        format!("{text}[webhooks]\nlisten = \"127.0.0.1:8090\"\n{webhooks}\n")
    };
    let topics = "topics = [\"arn:aws:sns:eu-west-1:123456789012:digest\"]";
    let config = parse(&of_kind("ses", topics)).unwrap();
    assert_eq!(config.webhooks.topics[0].arn(), "arn:aws:sns:eu-west-1:123456789012:digest");
    assert!(parse(&of_kind("resend", "")).unwrap().webhooks.topics.is_empty());
    for (kind, line, part) in [
        ("ses", "", "name yours by its ARN in webhooks.topics"),
        ("ses", "topics = []", "must name a topic"),
        ("ses", "topics = \"arn\"", "must be a list of texts"),
        ("ses", "topics = [7]", "must be a text in quotes"),
        ("ses", "topics = [\"digest-events\"]", "is not the ARN of an SNS topic"),
        ("resend", topics, "leave the line out with resend"),
    ] {
        let found = problems(&of_kind(kind, line));
        assert!(found.len() == 1 && found[0].contains(part), "{kind} {line}: {found:?}");
        assert!(found[0].starts_with("line "), "{found:?}");
    }
}

#[test]
fn a_batch_is_as_large_as_the_provider_takes_it_and_off_where_it_takes_none() {
    let of = |kind: &str, batch: i64| {
        LEAST.replace(
            "kind = \"smtp\"\nurl = \"smtp://127.0.0.1:2525\"\n",
            &format!("kind = \"{kind}\"\nbatch = {batch}\n"),
        )
    };
    for (kind, batch, read) in [
        ("resend", 100, Some(100)),
        ("postmark", 500, Some(500)),
        ("postmark", 1, None),
        ("ses", 50, Some(50)),
        ("mailgun", 1, None),
    ] {
        assert_eq!(parse(&of(kind, batch)).unwrap().provider.batch, read, "{kind}: {batch}");
    }
    for (kind, batch, said) in [
        ("resend", 101, "101 is not from 1 to 100, which resend takes in a request"),
        ("postmark", 501, "501 is not from 1 to 500, which postmark takes in a request"),
        ("resend", 0, "0 is not from 1 to 100, which resend takes in a request"),
        ("mailgun", 2, "kind = \"mailgun\" takes one message a request; leave the line out"),
    ] {
        assert_eq!(problems(&of(kind, batch)), [format!("line 10, provider.batch: {said}")]);
    }
    assert_eq!(parse(LEAST).unwrap().provider.batch, None);
}

#[test]
fn a_missing_file_is_answered_with_its_path_and_the_command_that_writes_one() {
    let error = Config::load(Path::new("/no/such/digestd.toml")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no configuration file at /no/such/digestd.toml; `digestd init` writes one with \
         comments, or name another with --config FILE"
    );
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_nearest_known_one() {
    assert_eq!(
        problem_of("provider", "time_out = \"30s\""),
        "line 9, provider.time_out: there is no such key; did you mean timeout?"
    );
    assert_eq!(
        problem_of("retry.transport", "max_tries = 3"),
        "line 12, retry.transport.max_tries: there is no such key; the nearest is max_age, of base, \
         cap, multiplier, jitter, max_attempts, max_age"
    );
    assert_eq!(
        problem_of("campain", "name = \"x\""),
        "line 11, campain: there is no such table; did you mean campaign?"
    );
    assert_eq!(
        problem_of("retry.recipient", "base = \"1s\""),
        "line 11, retry.recipient: recipient is never retried; retried are transport, \
         overloaded, rate_limited, ambiguous, cleanup"
    );
}

#[test]
fn what_is_required_says_why() {
    let text: String = LEAST
        .lines()
        .filter(|line| !line.starts_with("still_wanted"))
        .map(|l| l.to_owned() + "\n")
        .collect();
    assert_eq!(
        problems(&text),
        [
            "line 1, source.still_wanted: this is missing; it is required because a customer may opt \
          out or be erased after the selection: digestd asks it right before each message and \
          sends nothing where it gives no row, such as \"select 1 from customers where id = \
          :customer_id and digest_opt_in\""
        ]
    );
    let keys: Vec<String> = match parse("") {
        Err(ConfigError::Invalid { problems, .. }) => {
            problems.into_iter().map(|problem| problem.key).collect()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(
        keys,
        [
            "source.customers",
            "source.still_wanted",
            "campaign.timezone",
            "message.from",
            "provider.kind"
        ]
    );
}

#[test]
fn all_problems_are_told_at_once_in_the_order_of_the_file() {
    let text = LEAST.replace("smtp://127.0.0.1:2525\"", "smtp://127.0.0.1:2525\"\ntimeout = 30")
        + "[dispatch]\npage_size = 0\n[hold]\nunknowns_in_a_row = \"many\"\n";
    let error = parse(&text).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/etc/shop/digestd.toml has 3 problems:\
         \n  line 11, provider.timeout: this must be a duration such as \"30s\", not the number 30\
         \n  line 13, dispatch.page_size: 0 is not between 1 and 500\
         \n  line 15, hold.unknowns_in_a_row: this must be a whole number, not a text"
    );
}

#[test]
fn every_value_is_checked() {
    for (table, line, part) in [
        ("engine", "address = \"temporal\"", "is not host:port"),
        ("engine", "ui_url = \"ui\"", "is not an http:// or https:// URL"),
        ("ledger", "url = \"mysql://db/x\"", "use SQLite or PostgreSQL"),
        ("ledger", "url = \"sqlite::memory:\"", "forgets what was sent"),
        ("ledger", "schema = \"My Schema\"", "is not made of"),
        ("source", "cleanup_max_rows = 0", "is not between 1 and 1000000"),
        ("source", "rows = \"\"", "must not be empty"),
        ("campaign", "name = \"Digest!\"", "is not made of 1 to 40"),
        ("campaign", "name = \"digest-canary\"", "those of `digestd canary`"),
        ("campaign", "channel = \"emial\"", "did you mean email?"),
        ("campaign", "cron = \"9 * * MON\"", "it has 4 fields"),
        ("campaign", "cron = \"0 9 * * *\"", "fires twice in"),
        ("campaign", "catch_up = \"1s\"", "the engine's shortest is \"10s\""),
        ("campaign", "useful_for = \"2h\"", "a late run must still be of use"),
        ("message", "when_empty = \"skip\"", "without [source] rows"),
        ("provider", "rate_per_second = 0", "0 is not above 0"),
        ("provider", "rate_per_second = inf", "must be a number"),
        ("provider", "lease = \"30s\"", "must be shorter than provider.lease (30s)"),
        ("provider", "timeout = \"45s\"", "must be shorter than worker.shutdown_grace (45s)"),
        ("provider", "lease = \"30m\"", "must be shorter than unknown.escalate_after (30m)"),
        ("provider", "settle = \"0s\"", "must be longer than nothing"),
        ("provider", "settle = \"14d\"", "an unknown must not expire before"),
        ("dispatch", "page_size = 501", "is not between 1 and 500"),
        ("dispatch", "in_flight = 2001", "above the engine's limit of 2000"),
        ("dispatch", "in_flight = 99", "below dispatch.page_size (100)"),
        ("worker", "concurrency = -1", "is not between 0 and"),
        ("worker", "shutdown_grace = \"30s\"", "must be shorter than worker.shutdown_grace"),
        ("retry.transport", "jitter = 1.1", "1.1 is not between 0 and 1"),
        ("retry.transport", "multiplier = 0.9", "0.9 is not between 1 and"),
        ("retry.transport", "max_attempts = 0", "0 is not between 1 and"),
        ("retry.transport", "cap = \"1s\"", "shorter than base"),
        ("unknown", "keep_rows_for = \"30m\"", "must be shorter than unknown.keep_rows_for"),
        ("retention", "content = \"500d\"", "longer than retention.records"),
        ("http", "listen = \"8080\"", "is not an address and port"),
        ("http", "user_header = \"X-User\"", "name the proxies"),
        ("http", "user_header = \"a b\"", "is not the name of a header"),
        ("http", "trusted_proxies = [\"10.0.0.5\"]", "set user_header"),
        ("http", "trusted_proxies = [\"proxy\"]", "is not an address such as"),
        ("hold", "unknowns_in_a_row = 0", "is not between 1 and"),
    ] {
        let problem = problem_of(table, line);
        assert!(problem.contains(part), "{table}: {line}: {problem}");
        assert!(problem.starts_with("line "), "{problem}");
    }
    let with = |from: &str, to: &str| problems(&LEAST.replace(from, to)).join("\n");
    assert!(with("Europe/Berlin", "Europe/Berln").contains("did you mean Europe/Berlin?"));
    assert!(with("Europe/Berlin", "europe/berlin").contains("is spelled \"Europe/Berlin\""));
    assert!(with("\"smtp\"", "\"twilio\"").contains("this must begin with https://"));
    assert!(with("kind = \"smtp\"", "kind = \"postmark\"").contains("this must begin with"));
    assert!(with("url = \"smtp://127.0.0.1:2525\"", "").contains("it is the mail server"));
    assert!(
        with("[source]\n", "source = 1\n[sauce]\n").contains("must be a table, not the number")
    );
    assert!(problem_of("campaign", "channel = \"sms\"").contains("smtp does not deliver text"));
    assert!(problems("[source\n")[0].starts_with("line 1, this is not TOML: "));
}

#[test]
fn a_password_in_the_file_is_refused_with_its_variable_and_never_repeated() {
    for (text, variable) in [
        (format!("{LEAST}[ledger]\nurl = \"postgres://u:hunter2@db/x\"\n"), "DIGESTD_LEDGER_URL"),
        (
            LEAST.replace("[source]", "[source]\nurl = \"postgres://db/x?password=hunter2\""),
            "DIGESTD_SOURCE_URL",
        ),
        (LEAST.replace("smtp://", "smtp://u:hunter2@"), "DIGESTD_PROVIDER_PASSWORD"),
        (LEAST.replace("smtp://", "smtp://hunter2@"), "DIGESTD_PROVIDER_USERNAME"),
    ] {
        let problems = problems(&text);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(variable), "{problems:?}");
        assert!(!problems[0].contains("hunter2"), "{problems:?}");
    }
}

#[test]
fn a_variable_goes_before_the_file_and_the_source_is_the_ledger_unless_told() {
    let config = parse(LEAST).unwrap();
    let mut secrets = Secrets::default();
    let ledger = config.ledger_database(&secrets).unwrap();
    assert_eq!(ledger.kind, DatabaseKind::Sqlite);
    assert_eq!(ledger.url.reveal(), "sqlite:///etc/shop/digestd.db");
    assert_eq!(config.source_database(&secrets).unwrap(), ledger);
    secrets.ledger_url = Some(Redacted::new("postgres://u:hunter2@db/digestd".to_owned()));
    let ledger = config.ledger_database(&secrets).unwrap();
    assert_eq!(ledger.kind, DatabaseKind::Postgres);
    assert_eq!(config.source_database(&secrets).unwrap(), ledger);
    assert!(!format!("{ledger:?}").contains("hunter2"));
    secrets.source_url = Some(Redacted::new("hunter2".to_owned()));
    let error = config.source_database(&secrets).unwrap_err().to_string();
    assert!(error.starts_with("DIGESTD_SOURCE_URL is not usable: "), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn a_path_without_a_folder_is_in_the_working_directory() {
    let config = Config::parse(LEAST, Path::new("digestd.toml")).unwrap();
    let ledger = config.ledger_database(&Secrets::default()).unwrap();
    assert!(ledger.url.reveal().starts_with("sqlite:///"), "{}", ledger.url.reveal());
    assert!(ledger.url.reveal().ends_with("/digestd.db"), "{}", ledger.url.reveal());
}

#[test]
fn check_refuses_a_tick_where_the_clocks_change_and_secrets_that_are_missing_or_in_danger() {
    let now = "2026-11-30T12:00:00Z".parse().unwrap();
    let gap = LEAST.replace(
        "timezone = \"Europe/Berlin\"",
        "cron = \"30 2 * * SUN\"\ntimezone = \"America/New_York\"",
    );
    let config = parse(&gap).unwrap();
    assert_eq!(
        config.check(&Secrets::default(), now).unwrap_err().to_string(),
        "/etc/shop/digestd.toml, line 5, campaign.cron: the cron \"30 2 * * SUN\" in \
         America/New_York may be skipped: the clocks go forward then, or in the hour after it, as on \
         2027-03-14T02:30:00; the nearest safe time is 03:00: \"0 3 * * SUN\""
    );
    let config = parse(&LEAST.replace("smtp://", "smtp+insecure://")).unwrap();
    config.check(&Secrets::default(), now).unwrap();
    let mut secrets = Secrets::default();
    secrets.provider_password = Some(Redacted::new("hunter2".to_owned()));
    let error = config.check(&secrets, now).unwrap_err().to_string();
    assert!(error.contains("credentials in clear text") && !error.contains("hunter2"), "{error}");
    let token = LEAST.replace(
        "[message]\n",
        "[message]\nunsubscribe_url = \"https://s.example/{{ unsubscribe_token }}\"\n",
    );
    let config = parse(&token).unwrap();
    let error = config.check(&Secrets::default(), now).unwrap_err().to_string();
    assert!(error.contains("DIGESTD_UNSUBSCRIBE_SECRET"), "{error}");
}
