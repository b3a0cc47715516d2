use super::*;
use FailureClass::{
    Configuration, Overloaded, RateLimited, Recipient, Rejected, Schema, Transport,
};
use Phase::{Auth, Body, Data, Dot, Ehlo, Greeting, Mail, Rcpt, StartTls};
use smtp_proto::response::parser::ResponseReceiver;

/// The reply as the parser gives it.
fn answer(line: &str) -> Answer {
    ResponseReceiver::default().parse(&mut format!("{line}\r\n").as_bytes().iter()).unwrap()
}

fn assert_class(phase: Phase, line: &str, expected: FailureClass) {
    assert_eq!(classify(phase, &answer(line)), expected, "{} {line}", phase.name());
}

#[test]
fn temporary_refusals_are_overload_unless_they_speak_of_a_rate() {
    for phase in [Greeting, Ehlo, StartTls, Auth, Mail, Rcpt, Data, Body] {
        assert_class(phase, "421 4.3.2 Service shutting down", Overloaded);
        assert_class(phase, "421 4.7.0 Too many concurrent connections", RateLimited);
    }
    for phase in [Mail, Rcpt, Data, Body, Dot] {
        assert_class(phase, "450 4.2.0 Greylisted, come back later", Overloaded);
        assert_class(phase, "450 4.7.1 Error: too many messages, slow down", RateLimited);
        assert_class(phase, "451 4.3.0 Local error in processing", Overloaded);
        assert_class(phase, "451 4.4.1 No answer from host", Overloaded);
        assert_class(phase, "451 4.7.1 Try again later", Overloaded);
        assert_class(phase, "452 4.3.1 Insufficient system storage", Overloaded);
        assert_class(phase, "452 4.2.2 Mailbox over its daily quota", Overloaded);
    }
    assert_class(StartTls, "454 4.7.0 TLS not available due to temporary reason", Overloaded);
    assert_class(Auth, "454 4.7.0 Temporary authentication failure", Overloaded);
    assert_class(Auth, "432 4.7.12 A password transition is needed", Configuration);
}

#[test]
fn a_rate_is_waited_for_and_a_quota_holds_the_run() {
    for phase in [Mail, Rcpt, Data, Dot] {
        let rate = "454 Throttling failure: Maximum sending rate exceeded.";
        assert_class(phase, rate, RateLimited);
        let quota = "454 Throttling failure: Daily message quota exceeded.";
        assert_class(phase, quota, Configuration);
        let limit = "550 5.4.5 Daily user sending limit exceeded.";
        assert_class(phase, limit, Configuration);
    }
}

#[test]
fn words_inside_addresses_count_for_nothing() {
    assert_class(Rcpt, "450 4.2.1 <daily-limit@shop.example>: try later", Overloaded);
    assert_class(Rcpt, "450 4.2.1 <throttling@shop.example>: try later", Overloaded);
    assert_class(Rcpt, "550 <sending.limit@shop.example>: user unknown", Recipient);
}

#[test]
fn whatever_refuses_us_before_mail_is_configuration() {
    for phase in [Greeting, Ehlo, StartTls, Auth] {
        assert_class(phase, "554 5.7.1 Your address is blocked", Configuration);
        assert_class(phase, "502 5.5.1 Not implemented", Configuration);
    }
    assert_class(Greeting, "521 This host does not accept mail", Configuration);
    assert_class(Auth, "535 5.7.8 Authentication credentials invalid", Configuration);
}

#[test]
fn authentication_and_sender_policy_hold_the_run_at_every_phase() {
    for phase in [Mail, Rcpt, Data, Dot] {
        assert_class(phase, "530 5.7.0 Must issue a STARTTLS command first", Configuration);
        assert_class(phase, "530 Authentication required", Configuration);
        assert_class(phase, "534 5.7.9 Mechanism too weak", Configuration);
        assert_class(phase, "538 5.7.11 Encryption required", Configuration);
        for detail in 20..=26 {
            assert_class(phase, &format!("550 5.7.{detail} Unauthenticated"), Configuration);
        }
        assert_class(phase, "550 5.7.708 Access denied, traffic not accepted", Configuration);
        let unverified = "554 Message rejected: Email address is not verified.";
        assert_class(phase, unverified, Configuration);
    }
}

#[test]
fn a_refusal_of_mail_is_about_us() {
    assert_class(Mail, "550 5.7.1 Sender rejected", Configuration);
    assert_class(Mail, "550 Mailbox unavailable", Configuration);
    assert_class(Mail, "553 5.1.8 Sender address rejected: domain not found", Configuration);
    assert_class(Mail, "501 5.1.7 Bad sender address syntax", Configuration);
    assert_class(Mail, "553 Not owned by user", Configuration);
    assert_class(Mail, "503 5.5.1 AUTH first", Configuration);
    assert_class(Mail, "554 No", Configuration);
    assert_class(Mail, "552 5.3.4 Message size exceeds fixed limit", Schema);
    assert_class(Mail, "555 5.5.4 Unsupported option", Schema);
}

#[test]
fn a_refusal_of_rcpt_is_about_the_recipient() {
    for detail in ["5.1.1", "5.1.2", "5.1.3", "5.1.6", "5.1.10", "5.2.1", "5.2.2"] {
        for code in [550, 551, 553] {
            assert_class(Rcpt, &format!("{code} {detail} No"), Recipient);
        }
        assert_class(Dot, &format!("550 {detail} No"), Recipient);
    }
    for line in ["550 No such user", "551 Not local", "552 Mailbox full", "553 Bad name"] {
        assert_class(Rcpt, line, Recipient);
    }
    assert_class(Rcpt, "501 5.5.4 Syntax error in parameters", Recipient);
    assert_class(Rcpt, "556 5.1.10 Domain does not accept mail", Recipient);
    assert_class(Rcpt, "550 5.4.1 Recipient address rejected: Access denied", Recipient);
    assert_class(Rcpt, "550 5.7.1 Not welcome", Rejected);
    assert_class(Rcpt, "554 Not welcome", Rejected);
    assert_class(Rcpt, "554 5.7.1 <a@b.example>: Relay access denied", Configuration);
    assert_class(Rcpt, "550 5.7.54 Unable to relay recipient", Configuration);
    assert_class(Rcpt, "452 4.5.3 Too many recipients", RateLimited);
    assert_class(Rcpt, "552 5.5.3 Recipient limit", Overloaded);
}

#[test]
fn a_refusal_of_the_message_is_schema_where_it_is_malformed_and_else_a_rejection() {
    for phase in [Data, Body, Dot] {
        for code in [500, 501, 502, 503, 504, 555] {
            assert_class(phase, &format!("{code} No"), Schema);
        }
        assert_class(phase, "552 5.3.4 Message too big", Schema);
        assert_class(phase, "552 5.2.3 Message length exceeds limit", Schema);
        assert_class(phase, "552 Too much mail data", Schema);
        assert_class(phase, "554 5.6.0 Malformed content", Schema);
        assert_class(phase, "550 5.6.1 Media not supported", Schema);
        assert_class(phase, "554 5.7.1 Content rejected", Rejected);
        assert_class(phase, "550 No", Rejected);
        assert_class(phase, "554 Transaction failed", Rejected);
    }
}

#[test]
fn a_positive_reply_out_of_place_is_a_lost_thread() {
    assert_class(Data, "250 Ok", Transport);
    assert_class(Mail, "354 Go on", Transport);
}

#[test]
fn only_a_complete_yes_is_accepted_and_only_a_no_is_a_refusal() {
    assert!(matches!(verdict(&answer("250 2.0.0 Ok")), Reply::Accepted { .. }));
    assert!(matches!(verdict(&answer("252 Ok")), Reply::Accepted { .. }));
    assert_eq!(
        verdict(&answer("421 4.3.2 Shutting down")),
        Reply::Unknown("smtp 421 after dot".into())
    );
    assert_eq!(verdict(&answer("354 Go on")), Reply::Unknown("smtp 354 after dot".into()));
    assert_eq!(verdict(&answer("199 Hm")), Reply::Unknown("smtp 199 after dot".into()));
    assert_eq!(verdict(&answer("600 Hm")), Reply::Unknown("smtp 600 after dot".into()));
    assert_eq!(
        verdict(&answer("554 5.7.1 bob@shop.example said no")),
        Reply::NotSent(Failure::new(Rejected, "smtp dot 554 5.7.1"))
    );
    assert_eq!(
        verdict(&answer("451 Try later")),
        Reply::NotSent(Failure::new(Overloaded, "smtp dot 451"))
    );
}

#[test]
fn codes_are_short_and_keep_no_wording() {
    let told = |line| failure(Rcpt, &answer(line)).code;
    assert_eq!(told("550 5.1.1 <bob@shop.example>: unknown"), "smtp rcpt 550 5.1.1");
    assert_eq!(told("550 bob@shop.example"), "smtp rcpt 550");
    assert_eq!(told("550 5.7.708 Denied"), "smtp rcpt 550 5.7.x");
}

#[test]
fn queue_ids_are_found_where_servers_write_them() {
    for (text, expected) in [
        ("2.0.0 Ok: queued as 4XyZ1234AB", Some("4XyZ1234AB")),
        ("OK id=1tAbCd-000000001Xy-2fGh", Some("1tAbCd-000000001Xy-2fGh")),
        ("2.0.0 5A1B2C3D4E Message accepted for delivery", Some("5A1B2C3D4E")),
        ("Ok 0102018f2a3b4c5d-6e7f-000000", Some("0102018f2a3b4c5d-6e7f-000000")),
        ("2.0.0 Message queued with id 12ab34cd", Some("12ab34cd")),
        ("2.6.0 <m@shop.example> [InternalId=123456, Hostname=M.example] Queued", Some("123456")),
        ("2.0.0 Ok: queued as <bob1842@shop.example>", None),
        ("2.0.0 bob1842@shop.example will get it", None),
        ("OK", None),
        ("Message accepted for delivery", None),
    ] {
        let Reply::Accepted { message_id } = verdict(&answer(&format!("250 {text}"))) else {
            panic!("{text} is an acceptance");
        };
        assert_eq!(message_id.as_deref(), expected, "{text}");
    }
}
