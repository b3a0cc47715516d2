//! Rendering, judged by what an independent parser reads from the bytes.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "message/sms.rs"]
mod sms;

use digest_activities::message::{
    FrozenMessage, HEADER_CHARS_MAX, MESSAGE_BYTES_MAX, MessageSettings, RESERVED_NAMES, Redacted,
    RenderInput, Rendered, TemplateError, Templates, WhenEmpty,
};
use digest_workflows::operation::{Failure, FailureClass, OperationKey, Period};
use mail_parser::{Message, MessageParser, MimeHeaders, PartType};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use tempfile::TempDir;

const SUBJECT: &str = "For {{ first_name }}: {{ rows|length }} items";
const TEXT: &str = "Hello {{ first_name }}\n{% for row in rows %}{{ row.title }} {{ row.price }}\n{% endfor %}{{ unsubscribe_url }}";
const HTML: &str = "<p>Hello {{ first_name }}</p>{% for row in rows %}<p>{{ row.title }}</p>{% endfor %}<a href=\"{{ unsubscribe_url }}\">no more</a>";
const UNSUBSCRIBE: &str = "https://shop.example/u/{{ unsubscribe_token }}";
const SECRET: &str = "example-secret";

/// A campaign's settings and its templates' folder.
struct Campaign {
    folder: TempDir,
    settings: MessageSettings,
}

impl Campaign {
    fn new() -> Self {
        let campaign = Self {
            folder: tempfile::tempdir().unwrap(),
            settings: MessageSettings {
                from: "Shop <digest@shop.example>".into(),
                subject: Some("templates/subject.txt".into()),
                text: "templates/digest.txt".into(),
                html: Some("templates/digest.html".into()),
                unsubscribe_url: Some(UNSUBSCRIBE.into()),
                when_empty: WhenEmpty::Skip,
            },
        };
        campaign.file("subject.txt", SUBJECT).file("digest.txt", TEXT).file("digest.html", HTML)
    }

    fn file(self, name: &str, source: &str) -> Self {
        let templates = self.folder.path().join("templates");
        fs::create_dir_all(&templates).unwrap();
        fs::write(templates.join(name), source).unwrap();
        self
    }

    fn set(mut self, change: impl FnOnce(&mut MessageSettings)) -> Self {
        change(&mut self.settings);
        self
    }

    fn load(&self) -> Result<Templates, TemplateError> {
        self.load_with(Some(SECRET))
    }

    fn load_with(&self, secret: Option<&str>) -> Result<Templates, TemplateError> {
        let secret = secret.map(|secret| Redacted::new(secret.to_owned()));
        Templates::load(&self.settings, self.folder.path(), secret.as_ref())
    }

    fn render(&self, customer: &Value, rows: &Value) -> Result<Rendered, Failure> {
        render(&self.load().unwrap(), customer, rows)
    }

    fn message(&self, customer: &Value, rows: &Value) -> FrozenMessage {
        message(self.render(customer, rows).unwrap())
    }

    /// The class and code with which rendering one ordinary customer fails.
    fn failure(&self) -> (FailureClass, String) {
        let failure = self.render(&ann(), &rows()).unwrap_err();
        (failure.class, failure.code)
    }
}

fn key() -> OperationKey {
    OperationKey::new("digest", Period::parse("2026-W42").unwrap(), "customer-1842").unwrap()
}

fn ann() -> Value {
    json!({"customer_id": "customer-1842", "address": "ann@example.com", "first_name": "Ann"})
}

fn rows() -> Value {
    json!([{"title": "Tea", "price": "19.90"}, {"title": "Cup & saucer", "price": "7.00"}])
}

fn render(templates: &Templates, customer: &Value, rows: &Value) -> Result<Rendered, Failure> {
    templates.render(&RenderInput {
        key: &key(),
        customer: customer.as_object().unwrap(),
        rows: rows.as_array().unwrap(),
        selected_at: "2026-10-12T07:00:03.25Z".parse().unwrap(),
    })
}

fn message(rendered: Rendered) -> FrozenMessage {
    match rendered {
        Rendered::Message(message) => *message,
        Rendered::NothingToSend => panic!("nothing to send"),
    }
}

fn parse(message: &FrozenMessage) -> Message<'_> {
    MessageParser::new().parse(message.mime.reveal().as_slice()).unwrap()
}

/// The names of the top headers, as a plain reading of the bytes finds them.
fn header_names(mime: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(mime).unwrap();
    let head = text.split_once("\r\n\r\n").unwrap().0;
    let unfolded = head.split("\r\n").filter(|line| !line.starts_with([' ', '\t']));
    unfolded.map(|line| line.split_once(':').unwrap().0.to_owned()).collect()
}

/// What holds for every message, whatever its data: the headers and the structure are ours, there is
/// one recipient, the lines are legal, and what is read is what was rendered.
fn assert_sound(message: &FrozenMessage) {
    let mime = message.mime.reveal();
    let expected = [
        "From",
        "To",
        "Subject",
        "Message-ID",
        "Date",
        "X-Operation-Key",
        "List-Unsubscribe",
        "List-Unsubscribe-Post",
        "MIME-Version",
        "Content-Type",
    ];
    assert_eq!(header_names(mime), expected);

    let text = std::str::from_utf8(mime).unwrap();
    assert!(text.is_ascii() && text.ends_with("\r\n"));
    assert!(text.split("\r\n").all(|line| line.len() <= 998 && !line.contains(['\r', '\n', '\0'])));

    let parsed = parse(message);
    let to: Vec<_> = parsed.to().unwrap().iter().map(|to| (to.name(), to.address())).collect();
    assert_eq!(to, [(None, Some(message.recipient.reveal().as_str()))]);
    assert!(parsed.bcc().is_none() && parsed.cc().is_none());
    let from: Vec<_> = parsed.from().unwrap().iter().filter_map(|from| from.address()).collect();
    assert_eq!(from, [message.sender.as_str()]);
    assert_eq!(parsed.subject().unwrap(), message.subject.reveal());
    assert_eq!(parsed.parts.len(), 3);
    let html = message.html.as_ref().unwrap().reveal();
    for (part, kind, expected) in [(1, "plain", message.text.reveal()), (2, "html", html)] {
        let part = &parsed.parts[part];
        assert_eq!(part.content_type().unwrap().subtype(), Some(kind));
        assert_eq!(part.headers.len(), 2);
        let (PartType::Text(body) | PartType::Html(body)) = &part.body else { panic!("no text") };
        // The line break before a boundary belongs to the boundary (RFC 2046, 5.1.1).
        assert_eq!(body.replace("\r\n", "\n").trim_end_matches('\n'), expected.trim_end());
    }
}

#[test]
fn an_ordinary_digest_has_the_documented_headers() {
    let message = Campaign::new().message(&ann(), &rows());
    assert_sound(&message);
    let token = "ZGlnZXN0OmN1c3RvbWVyLTE4NDI.OejejgQHIcKPa9XHQ7hNbPCrH-4IAsEJkRYDaM-kRLw";
    let url = format!("https://shop.example/u/{token}");
    let headers = [
        ("Message-ID", "<digest.2026-W42.customer-1842@shop.example>"),
        ("Date", "Mon, 12 Oct 2026 07:00:03 +0000"),
        ("X-Operation-Key", "digest:2026-W42:customer-1842"),
        ("List-Unsubscribe", &format!("<{url}>")),
        ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(message.headers.reveal(), &headers);
    assert_eq!(message.recipient.reveal(), "ann@example.com");
    assert_eq!(message.sender, "digest@shop.example");
    assert_eq!(message.from, "Shop <digest@shop.example>");
    assert_eq!(message.subject.reveal(), "For Ann: 2 items");
    assert_eq!(message.text.reveal(), &format!("Hello Ann\nTea 19.90\nCup & saucer 7.00\n{url}\n"));
    assert!(message.html.as_ref().unwrap().reveal().contains("<p>Cup &amp; saucer</p>"));

    let mime = String::from_utf8(message.mime.reveal().clone()).unwrap();
    for (name, value) in &headers {
        assert!(mime.contains(&format!("\r\n{name}: {value}\r\n")), "{name}");
    }
}

#[test]
fn rendering_twice_gives_the_same_bytes_and_storing_keeps_them() {
    let campaign = Campaign::new();
    let message = campaign.message(&ann(), &rows());
    assert_eq!(message, campaign.message(&ann(), &rows()));
    let stored = serde_json::to_string(&message).unwrap();
    assert_eq!(serde_json::from_str::<FrozenMessage>(&stored).unwrap(), message);
    let changed = campaign.message(&ann(), &json!([{"title": "Tea", "price": "19.91"}]));
    assert_ne!(message.content_hash, changed.content_hash);
}

#[test]
fn nothing_private_is_printed() {
    let campaign = Campaign::new();
    let message = format!("{:?}", campaign.message(&ann(), &rows()));
    let templates = format!("{:?}", campaign.load().unwrap());
    for private in ["ann@example.com", "Ann", "Tea", "OejejgQH", SECRET] {
        assert!(!message.contains(private), "{private} in {message}");
        assert!(!templates.contains(private), "{private} in {templates}");
    }
}

#[test]
fn names_never_become_headers_or_recipients() {
    let campaign = Campaign::new();
    for name in [
        "Ann\r\nBcc: eve@evil.example",
        "Ann\r\n\r\n<script>",
        "Ann\rBcc: eve@evil.example",
        "Ann\nBcc: eve@evil.example",
        "=?utf-8?Q?Ann=0D=0ABcc:_eve@evil.example?=",
        "=?utf-8?B?QW5uDQpCY2M6IGV2ZUBldmlsLmV4YW1wbGU=?=",
        "Ann\u{2028}Bcc: eve@evil.example",
        "Ann\u{85}Bcc: eve@evil.example",
        "Ann 🎉👩‍👩‍👧",
        "\u{202e}آن מרים",
        "\0\u{1b}[31mAnn",
        &"x".repeat(1_000),
        &"ü".repeat(1_000),
        &"=?".repeat(500),
        &"a b ".repeat(250),
    ] {
        let customer =
            json!({"customer_id": "1", "address": "ann@example.com", "first_name": name});
        let rows = json!([{"title": name, "price": "1"}]);
        assert_sound(&campaign.message(&customer, &rows));

        let dangerous = json!({"customer_id": "1", "first_name": "Ann",
            "address": format!("ann@example.com{name}")});
        let failure = campaign.render(&dangerous, &rows).unwrap_err();
        assert_eq!(failure.class, FailureClass::Recipient);
        assert!(!failure.code.contains("example"), "{}", failure.code);
    }
}

#[test]
fn a_name_in_from_stays_a_name() {
    let campaign =
        Campaign::new().set(|s| s.from = "{{ first_name }} <digest@shop.example>".into());
    for name in [
        "Ann\r\nBcc: eve@evil.example",
        "eve@evil.example>, <eve@evil.example",
        "\", <eve@evil.example>, \"",
        "Zoë's Büro (Köln); group: a, b",
        "=?utf-8?Q?=3Ceve=40evil.example=3E=2C?=",
        &"long name ".repeat(100),
    ] {
        let customer =
            json!({"customer_id": "1", "address": "ann@example.com", "first_name": name});
        let message = campaign.message(&customer, &rows());
        assert_sound(&message);
        assert_eq!(message.sender, "digest@shop.example");
    }
}

#[test]
fn bodies_survive_dots_long_lines_and_any_letters() {
    let campaign = Campaign::new();
    for title in [
        ".",
        ".\r\n.\r\n..",
        "\n.\nQUIT",
        "\n--\nFrom me\n",
        "grüße, 你好, 🎉, \u{a0}",
        &"x".repeat(1_000),
        &"long line ".repeat(200),
        &"=20 ".repeat(300),
        "trailing   \t\nspaces \n",
        "a\rb\r\nc\u{b}\u{c}d\0",
    ] {
        let rows = json!([{"title": title, "price": "1"}, {"title": title, "price": "."}]);
        assert_sound(&campaign.message(&ann(), &rows));
    }
}

#[test]
fn a_body_that_needs_no_encoding_has_clean_lines_too() {
    let campaign = Campaign::new().file("digest.txt", "{{ first_name }}").set(|settings| {
        settings.html = None;
        settings.unsubscribe_url = None;
    });
    for (name, expected) in
        [("a\rb", "a\nb\n"), ("a\r\nb\r", "a\nb\n"), ("a\0\u{8}b\tc\n\n", "ab\tc\n"), (".", ".\n")]
    {
        let customer = json!({"address": "ann@example.com", "first_name": name});
        let message = campaign.message(&customer, &rows());
        assert_eq!(message.text.reveal(), expected);
        let mime = String::from_utf8(message.mime.reveal().clone()).unwrap();
        let body = format!("7bit\r\n\r\n{}", expected.replace('\n', "\r\n"));
        assert!(mime.ends_with(&body), "{mime:?}");
    }
}

#[test]
fn a_plain_text_campaign_has_one_part_and_an_http_url_no_one_click() {
    let campaign = Campaign::new().set(|settings| {
        settings.html = None;
        settings.unsubscribe_url = Some("http://127.0.0.1:8080/u/{{ unsubscribe_token }}".into());
    });
    let message = campaign.message(&ann(), &rows());
    let names = header_names(message.mime.reveal());
    assert!(names.contains(&"List-Unsubscribe".to_owned()));
    assert!(!names.contains(&"List-Unsubscribe-Post".to_owned()));
    assert_eq!(parse(&message).parts.len(), 1);
    assert!(message.html.is_none() && message.mime.reveal().ends_with(b"\r\n"));
    let body = parse(&message).body_text(0).unwrap().replace("\r\n", "\n");
    assert_eq!(&body, message.text.reveal());

    let without = Campaign::new().set(|s| s.unsubscribe_url = None).file("digest.txt", "Hello");
    let without = without.set(|s| s.html = None).message(&ann(), &rows());
    let names = header_names(without.mime.reveal());
    assert!(!names.iter().any(|name| name.starts_with("List-")), "{names:?}");
}

#[test]
fn a_customer_without_rows_is_skipped_or_mailed_as_configured() {
    let campaign = Campaign::new();
    assert_eq!(campaign.render(&ann(), &json!([])), Ok(Rendered::NothingToSend));
    let campaign = campaign.set(|settings| settings.when_empty = WhenEmpty::Send);
    assert_eq!(campaign.message(&ann(), &json!([])).subject.reveal(), "For Ann: 0 items");
}

#[test]
fn an_unusable_address_is_a_recipient_failure() {
    let campaign = Campaign::new();
    for (address, code) in [
        (json!(null), "address missing"),
        (json!(7), "address missing"),
        (json!("ann"), "address not exactly one bare mailbox"),
        (json!("ann@example.com, eve@example.com"), "address not exactly one bare mailbox"),
        (json!("zoë@example.com"), "address local part not ascii"),
        (json!("ann@example"), "address domain not usable"),
    ] {
        let failure = campaign.render(&json!({"customer_id": 1, "address": address}), &rows());
        assert_eq!(failure, Err(Failure::new(FailureClass::Recipient, code)));
    }
    let none = campaign.render(&json!({"customer_id": 1}), &rows());
    assert_eq!(none, Err(Failure::new(FailureClass::Recipient, "address missing")));
    let customer = json!({"address": "ann@bücher.example", "first_name": "Ann"});
    let message = campaign.message(&customer, &rows());
    assert_sound(&message);
    assert_eq!(message.recipient.reveal(), "ann@xn--bcher-kva.example");
}

#[test]
fn what_cannot_be_rendered_is_a_schema_failure_that_quotes_no_data() {
    let digest = |source: &str| Campaign::new().file("digest.txt", source).failure();
    let schema = |code: &str| (FailureClass::Schema, code.to_owned());
    for (source, code) in [
        ("\n\n{{ frist_name }}", "template digest.txt line 3: undefined (frist_name)"),
        ("{{ rows[0].colour }}", "template digest.txt line 1: undefined (rows[0].colour)"),
        ("{% if nope %}{% endif %}", "template digest.txt line 1: undefined (nope)"),
        ("{{ none }}", "template digest.txt line 1: null value (none)"),
        ("{{ first_name + 1 }}", "template digest.txt line 1: invalid operation"),
        ("{{ first_name|nope }}", "template digest.txt line 1: unknown filter"),
        ("\n{% include first_name %}", "template digest.txt line 2: template not found"),
        (
            "{% for i in range(9999) %}{% for i in range(9999) %}x{% endfor %}{% endfor %}",
            "template digest.txt line 1: too much work for one message",
        ),
        ("{{ 'x' * 999999999 }}", "template digest.txt line 1: too much work for one message"),
        (" \n ", "text is empty"),
    ] {
        let (class, found) = digest(source);
        assert_eq!(class, FailureClass::Schema);
        assert!(found.starts_with(code), "{source}: {found}");
    }
    let inner = Campaign::new().file("digest.txt", "\n{% include 'inner.txt' %}");
    let inner = inner.file("inner.txt", "\n\n\n{{ gone }}");
    assert_eq!(inner.failure(), schema("template inner.txt line 4: undefined (gone)"));
    let recursive = Campaign::new().file("digest.txt", "{% include 'digest.txt' %}").failure();
    assert_eq!(recursive.0, FailureClass::Schema);

    let subject = |source: &str| Campaign::new().file("subject.txt", source).failure();
    assert_eq!(subject("\n\t\n"), schema("subject is empty"));
    let long = format!("{{{{ 'x' * {} }}}}", HEADER_CHARS_MAX + 1);
    assert_eq!(subject(&long), schema("subject has more than 2000 characters"));

    let setting = |change: fn(&mut MessageSettings)| Campaign::new().set(change).failure();
    let from = setting(|s| s.from = "{{ first_name }}".into());
    assert_eq!(from, schema("from is not a mailbox: not exactly one bare mailbox"));
    let url = setting(|s| s.unsubscribe_url = Some("javascript:{{ first_name }}".into()));
    assert_eq!(url, schema("unsubscribe_url is not usable: neither https, http nor mailto"));
    let url =
        setting(|s| s.unsubscribe_url = Some("https://x.example/{{ '\n' }}a{{period}}".into()));
    assert_eq!(url.0, FailureClass::Schema);
    let url = setting(|s| {
        s.unsubscribe_url = Some("https://x.example/{{ 'x' * 1000 }}{{ period }}".into());
    });
    assert_eq!(url, schema("unsubscribe_url is not usable: too long for one header line"));
}

#[test]
fn a_message_has_a_largest_size() {
    let campaign = Campaign::new();
    let of = |bytes: usize| json!([{"title": "ü".repeat(bytes / 2), "price": "1"}]);
    // Text and HTML both hold it, in base64.
    assert_sound(&campaign.message(&ann(), &of(MESSAGE_BYTES_MAX / 3)));
    let failure = campaign.render(&ann(), &of(MESSAGE_BYTES_MAX / 2)).unwrap_err();
    assert_eq!(failure, Failure::new(FailureClass::Schema, "message has more than 10000000 bytes"));
}

#[test]
fn a_null_can_be_replaced_and_the_data_of_a_row_may_be_nested() {
    let campaign = Campaign::new()
        .file("subject.txt", "{{ first_name or 'there' }} {{ gone|default('x') }}")
        .file("digest.txt", "{{ rows[0].tags.sizes|join(',') }} {{ rows[0].big }}")
        .file("digest.html", "-");
    let customer = json!({"address": "ann@example.com", "first_name": null});
    let rows = json!([{"tags": {"sizes": ["S", "M"]}, "big": 9_007_199_254_740_993_i64}]);
    let message = campaign.message(&customer, &rows);
    assert_eq!(message.subject.reveal(), "there x");
    assert_eq!(message.text.reveal(), "S,M 9007199254740993\n");
}

#[test]
fn a_column_never_replaces_a_reserved_name() {
    let source = RESERVED_NAMES.map(|name| format!("{{{{ {name} }}}}")).join("\n");
    let campaign = Campaign::new().file("digest.txt", &source).file("digest.html", "-");
    let plain = campaign.message(&ann(), &rows());
    let mut customer: Map<String, Value> = ann().as_object().unwrap().clone();
    customer.extend(RESERVED_NAMES.map(|name| (name.to_owned(), json!("hidden"))));
    assert_eq!(campaign.message(&Value::Object(customer), &rows()), plain);
    assert!(plain.text.reveal().contains("\n2026-W42\ndigest\ndigest:2026-W42:customer-1842\n"));
}

#[test]
fn html_is_escaped_in_the_html_part_only_and_in_all_its_includes() {
    let campaign = Campaign::new()
        .file("digest.html", "{% include 'inner.txt' %}")
        .file("digest.txt", "{% include 'inner.txt' %}")
        .file("inner.txt", "{{ first_name }}");
    let customer = json!({"address": "ann@example.com", "first_name": "<b>&"});
    let message = campaign.message(&customer, &rows());
    assert_eq!(message.text.reveal(), "<b>&\n");
    assert_eq!(message.html.as_ref().unwrap().reveal(), "&lt;b&gt;&amp;\n");
}

#[test]
fn mistakes_are_found_at_load() {
    let error = |campaign: &Campaign, secret| campaign.load_with(secret).unwrap_err().to_string();
    let campaign = Campaign::new();
    let text = error(&campaign, None);
    assert!(text.contains("unsubscribe_url uses unsubscribe_token"), "{text}");
    assert!(text.contains("DIGESTD_UNSUBSCRIBE_SECRET is not set"), "{text}");
    assert!(error(&campaign, Some("")).contains("DIGESTD_UNSUBSCRIBE_SECRET is empty"));

    let fixed = Campaign::new().set(|s| s.unsubscribe_url = Some("https://shop.example/u".into()));
    assert!(fixed.load_with(None).is_ok());
    let hidden = fixed
        .file("digest.html", "{% include 'foot.html' %}")
        .file("foot.html", "{{ unsubscribe_token }}");
    assert!(error(&hidden, None).starts_with("template foot.html uses unsubscribe_token"));

    let broken = Campaign::new().file("digest.html", "\n\n{{ first_name");
    let text = error(&broken, Some(SECRET));
    assert!(text.contains("templates/digest.html line 3: "), "{text}");
    let from = Campaign::new().set(|s| s.from = "Shop".into());
    assert!(error(&from, Some(SECRET)).starts_with("[message] from is not a mailbox"));
    let from = Campaign::new().set(|s| s.from = "{{ shop".into());
    assert!(error(&from, Some(SECRET)).starts_with("template from line 1: "));
    let url = Campaign::new().set(|s| s.unsubscribe_url = Some("shop.example/u".into()));
    let text = error(&url, Some(SECRET));
    assert!(text.contains("(not a url); write for example https://shop.example/u/{{ un"), "{text}");
}

#[test]
fn settings_are_read_from_a_table_with_its_defaults() {
    let table = json!({"from": "a@b.example", "subject": "s", "text": "t"});
    let settings: MessageSettings = serde_json::from_value(table).unwrap();
    assert_eq!((settings.html, settings.when_empty), (None, WhenEmpty::Skip));
    let table = json!({"from": "a@b.example", "subject": "s", "text": "t", "when_empty": "send"});
    let settings: MessageSettings = serde_json::from_value(table).unwrap();
    assert_eq!(settings.when_empty, WhenEmpty::Send);
}

#[test]
fn the_sample_templates_render_with_and_without_name_rows_and_url() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../worker");
    let mut settings = Campaign::new().settings;
    settings.when_empty = WhenEmpty::Send;
    let secret = Redacted::new(SECRET.to_owned());
    let templates = Templates::load(&settings, &folder, Some(&secret)).unwrap();

    let full = message(render(&templates, &ann(), &rows()).unwrap());
    assert_sound(&full);
    assert_eq!(full.subject.reveal(), "Ann, your week: 2 new items");
    let url = full.headers.reveal()[3].1.trim_matches(['<', '>']);
    let expected = format!(
        "Hello Ann,\n\nhere is what is new this week, picked for you:\n\n* Tea: 19.90 EUR\n\
         * Cup & saucer: 7.00 EUR\n\nSee you next week\nYour shop\n\n-- \n\
         You get this mail once a week because you subscribed to it.\nUnsubscribe: {url}\n"
    );
    assert_eq!(full.text.reveal(), &expected);
    let html = full.html.as_ref().unwrap().reveal();
    for piece in
        ["Hello Ann", "Tea and 1 more", "Cup &amp; saucer", "7.00&nbsp;€", ">Unsubscribe</a>"]
    {
        assert!(html.contains(piece), "{piece} is not in {html}");
    }
    assert!(html.contains(&format!("href=\"{}\"", url.replace('/', "&#x2f;"))), "{html}");

    let nobody = json!({"address": "ann@example.com", "first_name": null});
    let empty = message(render(&templates, &nobody, &json!([])).unwrap());
    assert_sound(&empty);
    assert_eq!(empty.subject.reveal(), "Your week: 0 new items");
    let start = "Hello,\n\nthere is nothing new for you this week.\n\nSee you next week\n";
    assert!(empty.text.reveal().starts_with(start), "{}", empty.text.reveal());

    settings.unsubscribe_url = None;
    let templates = Templates::load(&settings, &folder, None).unwrap();
    let without = message(render(&templates, &ann(), &rows()).unwrap());
    assert!(without.text.reveal().ends_with("\nSee you next week\nYour shop\n"));
    assert!(!without.html.unwrap().reveal().contains("Unsubscribe"));
}

static TEMPLATES: LazyLock<Templates> = LazyLock::new(|| {
    let from = "{{ first_name }} <digest@shop.example>";
    Campaign::new().set(|settings| settings.from = from.into()).load().unwrap()
});

/// Texts rich in what has a meaning to mail: line ends, separators, encoded words, boundaries.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<String>(),
        "[\r\n\t :<>@,;.=?_\"\\\\(){}%-]{0,12}",
        Just("\r\nBcc: eve@evil.example".to_owned()),
        Just("=?utf-8?Q?=0D=0ABcc:_eve@evil.example?=".to_owned()),
        "[a-zäß字🎉\u{2028}\u{202e}\u{300}]{0,90}",
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_data_ever_adds_a_header_or_a_recipient(
        name in hostile(),
        titles in prop::collection::vec(hostile(), 1..4),
        suffix in hostile(),
    ) {
        let rows: Vec<Value> =
            titles.iter().map(|title| json!({"title": title, "price": "19.90"})).collect();
        let rows = Value::Array(rows);
        let customer = json!({"address": "ann@example.com", "first_name": name});
        let first = render(&TEMPLATES, &customer, &rows);
        prop_assert_eq!(&first, &render(&TEMPLATES, &customer, &rows));
        assert_sound(&message(first.unwrap()));

        let customer = json!({"address": format!("ann@example.com{suffix}"), "first_name": name});
        match render(&TEMPLATES, &customer, &rows) {
            Ok(rendered) => assert_sound(&message(rendered)),
            Err(failure) => prop_assert_eq!(failure.class, FailureClass::Recipient),
        }
    }

    #[test]
    fn no_address_ever_becomes_two(address in hostile()) {
        let customer = json!({"address": address, "first_name": "Ann"});
        match render(&TEMPLATES, &customer, &rows()) {
            Ok(rendered) => assert_sound(&message(rendered)),
            Err(failure) => prop_assert_eq!(failure.class, FailureClass::Recipient),
        }
    }
}
