//! What a person decides through the binary, on a prepared ledger and without an engine: what is
//! refused, what is recorded, and how each command ends.

#![expect(clippy::unwrap_used, reason = "a test may fail by a panic")]

#[path = "decisions/shop.rs"]
mod shop;

use digest_workflows::operation::{Contract, FailureClass, Replay, State, Verdict};
use jiff::SignedDuration;
use serde_json::json;
use shop::{Ran, Shop};

const REMEMBERS: Contract = Contract {
    replay: Replay::ReturnsOriginal {
        window: SignedDuration::from_hours(24),
        margin: SignedDuration::from_hours(1),
    },
    ..Contract::NONE
};

#[tokio::test]
async fn unknown_lists_what_waits_for_a_human_with_the_commands_that_settle_it() {
    let shop = Shop::new(4).await;
    assert_eq!(shop.run("unknown").ends(0).out, "no delivery is unknown\n");
    shop.unknown(1).await;
    shop.unknown(3).await;
    shop.dead(2, Contract::NONE).await;

    let text = shop.run("unknown").ends(4).out;
    let command = format!("digestd resolve {} --attempt 1 --delivered --reason", shop.key(1));
    assert!(text.contains(&command), "{text}");
    assert!(text.contains("a human's verdict"), "{text}");
    let text = shop.run("--config ./digestd.toml unknown").ends(4).out;
    assert!(text.contains("digestd --config ./digestd.toml resolve digest:"), "{text}");

    let all = shop.run("unknown --json").ends(4).json();
    let line = &all["operations"][0];
    assert_eq!((&all["period"], &all["next"]), (&json!(null), &json!(null)));
    assert_eq!(line["key"], shop.key(1).to_string());
    assert_eq!(
        (&line["state"], &line["class"], &line["attempts"], &line["attempt"]),
        (&json!("unknown"), &json!("ambiguous"), &json!(1), &json!(1))
    );
    assert!(line["since"].is_string() && line["waits_for"].is_string(), "{line}");
    let rest = shop.run(&format!("unknown --json --after {}", shop.key(1))).ends(4).json();
    assert_eq!(rest["operations"].as_array().unwrap().len(), 1);
    let none = shop.run(&format!("unknown --json --after {}", shop.key(3))).ends(0).json();
    assert_eq!(none["operations"], json!([]));

    assert_eq!(shop.run("unknown --period 2026-W42 --json").ends(4).json()["period"], "2026-W42");
    let missing = shop.run("unknown --period 2026-W41").ends(1);
    assert!(missing.err.contains("knows no run of digest in 2026-W41"), "{}", missing.err);
    shop.run("unknown --after reminder:2026-W42:c-1").ends(2);
}

#[tokio::test]
async fn every_page_is_printed_and_json_says_where_the_next_begins() {
    let shop = Shop::new(1).await;
    shop.unknown(1).await;
    shop.multiply(1, 600).await;
    let text = shop.run("unknown").ends(4).out;
    for n in 1..=600 {
        let command = format!("digestd resolve digest:2026-W42:d-{n:03} --attempt 1 ");
        assert!(text.contains(&command), "{command}");
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = shop.run(&format!("unknown --json {after}")).ends(4).json();
        let keys = page["operations"].as_array().unwrap().iter();
        seen.extend(keys.map(|line| line["key"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("--after {next}");
    }
    assert_eq!(seen.len(), 601);
    assert!(seen.is_sorted() && !after.is_empty());
}

#[tokio::test]
async fn dead_letters_tell_class_code_and_what_a_replay_would_do() {
    let shop = Shop::new(2).await;
    assert_eq!(shop.run("dead-letters").ends(0).out, "there is no dead letter\n");
    shop.dead(1, Contract::NONE).await;
    let text = shop.run("dead-letters --period 2026-W42").ends(4).out;
    for part in ["rejected", "smtp 550", "a replay, which sends the same bytes", "digestd replay"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let page = shop.run("dead-letters --json").ends(4).json();
    let line = &page["operations"][0];
    assert_eq!(line["key"], shop.key(1).to_string());
    assert_eq!(
        (&line["state"], &line["class"], &line["code"], &line["attempts"]),
        (&json!("dead"), &json!("rejected"), &json!("smtp 550"), &json!(1))
    );
    assert!(line["since"].is_string(), "{line}");
    assert_eq!(line.get("attempt"), None);
}

#[tokio::test]
async fn a_verdict_is_shown_asked_recorded_and_handed_over_later_where_the_engine_is_away() {
    let shop = Shop::new(3).await;
    shop.unknown(1).await;
    let resolve = format!("resolve {} --delivered --by ann --reason log", shop.key(1));
    let unasked = shop.run(&resolve).ends(2);
    assert!(unasked.out.contains("counted as sent"), "{}", unasked.out);
    assert!(unasked.err.contains("add --yes"), "{}", unasked.err);
    assert_eq!(shop.operation(1).await.verdict, None);

    let done = shop.run(&format!("{resolve} --yes --attempt 1")).ends(0);
    assert!(done.out.contains("recorded, acted on at 20"), "{}", done.out);
    assert!(done.err.contains("a worker hands it over"), "{}", done.err);
    assert_eq!(shop.operation(1).await.verdict.unwrap().verdict, Verdict::Delivered);
    assert_eq!(shop.decided("judged").await, [("ann".to_owned(), Some("log".to_owned()))]);
    let again = shop.run(&format!("{resolve} --yes")).ends(3);
    assert!(again.out.contains("delivered is recorded already"), "{}", again.out);
    // A correction may not lead to another send.
    let weaker = format!("resolve {} --not-delivered --reason x --yes", shop.key(1));
    let refused = shop.run(&weaker).ends(1);
    assert!(refused.out.contains("refused: an earlier verdict stands"), "{}", refused.out);

    // Repeated after it was acted on, it is recorded already too.
    shop.settled_long_ago(1).await;
    shop.run(&format!("{resolve} --yes")).ends(3);

    shop.unknown(2).await;
    let abandon = format!("resolve {} --abandon --reason x --yes", shop.message_id(2));
    let done = shop.run(&abandon).ends(0);
    assert!(done.out.contains("now expired"), "{}", done.out);
    shop.run(&abandon).ends(3);
    let differs = format!("resolve {} --delivered --reason x --yes", shop.key(2));
    let refused = shop.run(&differs).ends(1);
    assert!(refused.out.contains("refused: it is expired, not unknown"), "{}", refused.out);
}

#[tokio::test]
async fn nothing_is_decided_for_keys_that_are_not_unknown_or_have_a_newer_attempt() {
    let shop = Shop::new(6).await;
    shop.unknown(1).await;
    shop.dead(2, Contract::NONE).await;
    shop.unknown_twice(3).await;
    let before = shop.operation(3).await;
    let late = format!("resolve {} --not-delivered --attempt 1 --reason x --yes", shop.key(3));
    let unnamed = format!("resolve {} --not-delivered --reason x --yes", shop.key(3));
    for line in [late, unnamed] {
        let refused = shop.run(&line).ends(1);
        assert!(refused.out.contains("--attempt 2"), "{}", refused.out);
        assert_eq!(shop.operation(3).await, before);
    }
    let sent = format!("resolve {} --delivered --reason x --yes", shop.key(4));
    shop.sent(4).await;
    let refused = shop.run(&sent).ends(1);
    assert!(refused.out.contains("refused: it is sent, not unknown"), "{}", refused.out);
    let keys = format!("# four\n{}\n\n{}\n{}\n", shop.key(1), shop.key(2), shop.key(77));
    let mixed =
        shop.run_with("resolve --keys-from - --not-delivered --reason x --yes", &keys).ends(1);
    for part in ["refused: it is dead, not unknown", "the ledger knows no such operation"] {
        assert!(mixed.out.contains(part), "{part}: {}", mixed.out);
    }
    assert_eq!(shop.operation(1).await.verdict.unwrap().verdict, Verdict::NotDelivered);
    assert_eq!(shop.operation(2).await.state, State::Dead);
    let named = format!("resolve {} --not-delivered --attempt 2 --reason x --yes", shop.key(3));
    shop.run(&named).ends(0);
}

#[tokio::test]
async fn a_file_of_keys_is_taken_whole_or_not_at_all() {
    let shop = Shop::new(4).await;
    shop.unknown(1).await;
    shop.unknown(2).await;
    let resolve = "resolve --keys-from - --not-delivered --reason x --yes";
    let one = shop.key(1).to_string();
    for (file, part) in [
        (format!("{one}\nann@shop.example\nnonsense\n"), "line 2, line 3"),
        ("\u{0}\u{1}\n".to_owned(), "line 1"),
        ("# nothing\n\n".to_owned(), "there is no key"),
        (format!("{one}\nreminder:2026-W42:c-1"), "reminder:2026-W42:c-1"),
        ([1, 2, 3, 4].map(|n| shop.key(n).to_string()).join("\n"), "max_keys = 3"),
    ] {
        let refused = shop.run_with(resolve, &file).ends(2);
        assert!(refused.err.contains(part), "{file:?}: {}", refused.err);
        assert!(!refused.err.contains("ann"), "{}", refused.err);
    }
    let unasked = shop.run_with(resolve.trim_end_matches(" --yes"), &one).ends(2);
    assert!(unasked.err.contains("standard input holds the keys"), "{}", unasked.err);
    std::fs::write(shop.path("binary"), [0xff, 0xfe, 0x00]).unwrap();
    let binary = shop.run("resolve --keys-from binary --abandon --reason x --yes").ends(2);
    assert!(binary.err.contains("is not text"), "{}", binary.err);
    let absent = shop.run("resolve --keys-from absent --abandon --reason x --yes").ends(2);
    assert!(absent.err.contains("absent cannot be read"), "{}", absent.err);
    assert_eq!(shop.operation(1).await.verdict, None, "nothing was decided by any of them");
    // Three lines, two keys: one is named twice, once as its Message-ID.
    let file = format!("{one}\r\n{}\n{}\n{one}\n", shop.message_id(1), shop.key(2));
    shop.run_with(resolve, &file).ends(0);
    shop.run_with(resolve, &file).ends(3);
    assert_eq!(shop.decided("judged").await.len(), 2);
}

#[tokio::test]
async fn a_replay_is_bounded_and_refuses_whatever_may_have_been_sent() {
    let shop = Shop::new(8).await;
    for customer in 1..=4 {
        shop.dead(customer, Contract::NONE).await;
    }
    shop.unknown(5).await;
    shop.sent(6).await;
    shop.dead(7, Contract::NONE).await;
    shop.accepted_after_all(7).await;
    let key = |n| format!("--key {}", shop.key(n));
    let rest = "--reason x --yes";
    let week = "--period 2026-W42";
    for (line, code, part) in [
        (format!("replay {} {rest}", key(1)), 2, "--period"),
        (format!("replay {week} {rest}"), 2, "--key"),
        (
            format!("replay {week} {} {} {} {} {rest}", key(1), key(2), key(3), key(4)),
            2,
            "max_keys = 3",
        ),
        (
            format!("replay --period 2026-W41 {} {rest}", key(1)),
            2,
            "not of the campaign \"digest\" in 2026-W41",
        ),
        (format!("replay {week} --key reminder:2026-W42:c-1 {rest}"), 2, "not of the campaign"),
        (
            format!("replay {week} {} {} {rest}", key(1), key(5)),
            1,
            "refused: it is unknown, not dead",
        ),
        (format!("replay {week} {} {} {rest}", key(1), key(6)), 1, "refused: it is sent, not dead"),
        (
            format!("replay {week} {} {} {rest}", key(1), key(7)),
            1,
            "refused: an attempt is not proven not sent",
        ),
        (
            format!("replay {week} {} {} {rest}", key(1), key(8)),
            1,
            "refused: it is selected, not dead",
        ),
        (
            format!("replay {week} {} {} {rest}", key(1), key(77)),
            1,
            "the ledger knows no such operation",
        ),
        (format!("replay {week} {} --reason x", key(1)), 2, "add --yes"),
    ] {
        let Ran { out, err, .. } = shop.run(&line).ends(code);
        assert!(format!("{out}{err}").contains(part), "{line}: {out}{err}");
        assert_eq!(shop.operation(1).await.state, State::Dead, "{line}");
    }
    assert!(shop.decided("replayed").await.is_empty());
    let good = format!("replay {week} {} {} --by ann {rest}", key(1), key(2));
    let done = shop.run(&good).ends(0);
    assert!(done.out.contains("2 messages replayed"), "{}", done.out);
    assert!(done.err.contains("a worker hands it over"), "{}", done.err);
    assert_eq!(shop.operation(1).await.state, State::Sending);
    assert_eq!(shop.decided("replayed").await, vec![("ann".to_owned(), Some("x".to_owned())); 2]);
    shop.run(&good).ends(1);
    assert_eq!(shop.decided("replayed").await.len(), 2);
}

#[tokio::test]
async fn a_refreeze_takes_todays_row_or_names_why_it_cannot() {
    let shop = Shop::new(5).await;
    for customer in [1, 2, 3, 4] {
        let contract = if customer == 4 { REMEMBERS } else { Contract::NONE };
        shop.dead(customer, contract).await;
    }
    shop.execute("update customers set email = 'corrected@shop.example' where id = 'c-1'").await;
    shop.execute("delete from customers where id = 'c-2'").await;
    shop.execute("update customers set email = null where id = 'c-3'").await;
    let line =
        |n| format!("replay --period 2026-W42 --key {} --refreeze --reason x --yes", shop.key(n));
    for (customer, part) in [
        (2, "the customers query returns no such customer any more"),
        (3, "the customer has no address"),
        (4, "the provider may remember the bytes"),
    ] {
        let refused = shop.run(&line(customer)).ends(1);
        assert!(refused.out.contains(part), "{}", refused.out);
        assert_eq!(shop.operation(customer).await.state, State::Dead);
    }
    shop.template("Hello {{ nobody.name }}");
    let refused = shop.run(&line(1)).ends(1);
    assert!(refused.out.contains("it still cannot be rendered: schema"), "{}", refused.out);
    shop.template("Good morning");
    let done = shop.run(&line(1)).ends(0);
    assert!(!format!("{}{}", done.out, done.err).contains("corrected@"), "{}", done.out);
    let message = shop.ledger.message(&shop.key(1)).await.unwrap().unwrap();
    assert_eq!(message.recipient.reveal(), "corrected@shop.example");
    assert!(message.text.reveal().starts_with("Good morning"));
    assert_eq!(
        (shop.decided("refrozen").await.len(), shop.decided("replayed").await.len()),
        (1, 1)
    );
}

#[tokio::test]
async fn failed_cleanups_are_tried_again_and_nothing_else() {
    let shop = Shop::new(2).await;
    shop.sent(1).await;
    shop.run("cleanup --period 2026-W41").ends(1);
    shop.run("cleanup --period 2026-W42").ends(3);
    shop.cleanup_failed(1).await;
    let done = shop.run("cleanup --period 2026-W42").ends(0);
    assert!(done.out.starts_with("1 cleanups are tried again"), "{}", done.out);
    assert!(!shop.operation(1).await.cleanup.given_up);
    shop.run("cleanup --period 2026-W42").ends(3);
}

#[tokio::test]
async fn a_customer_is_forgotten_once() {
    let shop = Shop::new(3).await;
    let forget = |n: u32| format!("forget --customer c-{n} --by ann --reason erasure");
    let done = shop.run(&forget(1)).ends(0);
    assert!(done.out.starts_with("content and address erased in 1 of 1"), "{}", done.out);
    assert_eq!(shop.operation(1).await.state, State::Suppressed);
    assert_eq!(shop.ledger.frozen_data(&shop.key(1)).await.unwrap(), None);
    shop.run(&forget(1)).ends(3);
    let unknown = shop.run(&forget(77)).ends(1);
    assert!(unknown.err.contains("knows no operation of this customer"), "{}", unknown.err);
    shop.unknown(2).await;
    let doubt = shop.run(&forget(2)).ends(4);
    assert!(doubt.out.contains("never sent again"), "{}", doubt.out);
    shop.dead(3, Contract::NONE).await;
    shop.run(&forget(3)).ends(0);
    let replay =
        format!("replay --period 2026-W42 --key {} --refreeze --reason x --yes", shop.key(3));
    let refused = shop.run(&replay).ends(1);
    assert!(refused.out.contains("was erased"), "{}", refused.out);
    assert_eq!(shop.operation(3).await.class, Some(FailureClass::Rejected));
}

#[tokio::test]
async fn an_audit_says_nothing_about_what_it_could_not_compare() {
    let shop = Shop::new(2).await;
    let without_engine = shop.run("audit --period 2026-W42 --json").ends(1);
    assert!(without_engine.err.contains("no Temporal server answered"), "{}", without_engine.err);
    assert_eq!(without_engine.out, "");
    // Exit code 1 would look like a difference.
    let missing = shop.run("audit --period 2026-W41").ends(2);
    assert!(missing.err.contains("knows no run of digest in 2026-W41"), "{}", missing.err);
    let removed = "its records were removed after [retention] records";
    let sql = format!("update digestd_runs set state = 'closed', reason = '{removed}'");
    shop.execute(&sql).await;
    let gone = shop.run("audit --period 2026-W42").ends(1);
    assert!(gone.err.contains("cannot be audited any more: its records were"), "{}", gone.err);
}
