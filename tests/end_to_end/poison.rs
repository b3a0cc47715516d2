//! Customers whose data is poison: each is put aside with its reason, and nobody else waits for it.

use crate::end_to_end::world::{Customer, PERIOD, World, counts, of_mail, world};
use digest_tests::smtp::{SmtpServer, Traits};
use std::collections::BTreeSet;
use std::sync::Arc;

/// An address that injected headers would reach.
const INJECTED: &str = "eve@evil.example";
/// At most this many attempts end a poisoned operation.
const ATTEMPTS_MAX: usize = 3;

/// What becomes of a poisoned customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The message goes out, harmless.
    Sent,
    /// A dead letter of this class.
    Dead(&'static str),
    /// Not selected, with these words.
    Fault(&'static str),
}

/// One poison: its name, the id as SQL, the address, the name, and the title of its row.
struct Poison {
    id: String,
    address: String,
    name: String,
    title: String,
    fate: Fate,
}

fn quoted(text: &str) -> String {
    let literal: Vec<String> = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("cast(x'{}' as text)", literal.concat())
}

/// Text of these bytes, whether or not they are UTF-8.
fn bytes(bytes: &[u8]) -> String {
    let literal: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("cast(x'{}' as text)", literal.concat())
}

fn poisons() -> Vec<Poison> {
    let plain = |number: usize, fate| Poison {
        id: quoted(&format!("poison-{number:02}")),
        address: quoted("poisoned@shop.example"),
        name: quoted("Poisoned"),
        title: quoted("Thing"),
        fate,
    };
    let injection = format!("Ann\r\nBcc: {INJECTED}");
    let lone = format!("Ann\rBcc: {INJECTED}\nCc: {INJECTED}\u{2028}To: {INJECTED}");
    let word = "=?utf-8?B?QW5uDQpCY2M6IGV2ZUBldmlsLmV4YW1wbGU=?=";
    let large = "printf('%.*c', 10485760, 'x')".to_owned();
    let two = format!("a@shop.example, {INJECTED}");
    let crlf = format!("a@shop.example\r\nRCPT TO:<{INJECTED}>");
    let sent = Fate::Sent;
    let utf8 = Fate::Fault("not UTF-8");
    vec![
        Poison { name: quoted(&injection), ..plain(1, sent) },
        Poison { name: quoted(&lone), ..plain(2, sent) },
        Poison { name: quoted(word), ..plain(3, sent) },
        Poison { name: quoted("\u{202e}\u{200f}שלום evil\u{2066}🎈"), ..plain(4, sent) },
        Poison { title: large, ..plain(5, Fate::Dead("schema")) },
        Poison { name: bytes(b"An\xff\xfen"), ..plain(6, utf8) },
        Poison { title: bytes(b"\xc3\x28"), ..plain(7, utf8) },
        Poison { title: "x'00ff'".to_owned(), ..plain(8, Fate::Fault("holds a blob")) },
        Poison { address: quoted(""), ..plain(9, Fate::Dead("recipient")) },
        Poison { address: "null".to_owned(), ..plain(10, Fate::Dead("recipient")) },
        Poison { address: quoted(&two), ..plain(11, Fate::Dead("recipient")) },
        Poison { address: quoted(&crlf), ..plain(12, Fate::Dead("recipient")) },
        Poison { name: quoted("template error"), ..plain(13, Fate::Dead("schema")) },
        Poison { name: "null".to_owned(), ..plain(14, Fate::Dead("schema")) },
        Poison { id: quoted(&"x".repeat(300)), ..plain(15, Fate::Fault("more than 250")) },
        Poison { id: "null".to_owned(), ..plain(16, Fate::Fault("null or empty")) },
        Poison { id: quoted(""), ..plain(17, Fate::Fault("null or empty")) },
        Poison { id: "x'6162'".to_owned(), ..plain(18, Fate::Fault("another type")) },
        Poison { id: bytes(b"poison-\xff"), ..plain(19, utf8) },
    ]
}

/// A run of ordinary customers with the poisoned ones among them.
async fn poisoned(name: &str, ordinary: usize) {
    let server = Arc::new(SmtpServer::start(Traits::default(), []).unwrap());
    let customers = (1..=ordinary).map(|n| Customer::new(format!("customer-{n:04}"), n)).collect();
    let plan = world(name).these(customers).smtp(server.port());
    let Some(mut world) = plan.start().await else { return };
    let record = Arc::clone(&server);
    world.received_by(move || of_mail(&record.record().stored));
    let subject = "{% if first_name == 'template error' %}{{ no_such_name.field }}{% endif %}\
                   {{ first_name }}, your week";
    std::fs::write(world.folder().join("subject.txt"), subject).unwrap();
    let poisons = poisons();
    for Poison { id, address, name, title, .. } in &poisons {
        let customer = format!("insert into customers values ({id}, {address}, {name}, 1)");
        world.shop.execute(&customer).await;
        let when = "'2024-02-28 12:00:00'";
        let item = format!("insert into digest_items values ({id}, {title}, '1', {when})");
        world.shop.execute(&item).await;
    }
    let _worker = world.worker().await;
    world.start_run().await;
    let status = world.closed().await;
    let all = |is: fn(Fate) -> bool| poisons.iter().filter(|p| is(p.fate)).count();
    let sent = ordinary + all(|fate| fate == Fate::Sent);
    let dead = all(|fate| matches!(fate, Fate::Dead(_)));
    let faults = all(|fate| matches!(fate, Fate::Fault(_)));
    let n = |count: usize| u64::try_from(count).unwrap();
    counts(
        &status,
        &[
            ("selected", n(sent + dead)),
            ("cleaned", n(sent)),
            ("dead", n(dead)),
            ("unkeyed", n(faults)),
            ("missing_count", 0),
        ],
    );
    let told = world.digestd(&format!("status --period {PERIOD}")).await.stdout;
    for (number, poison) in poisons.iter().enumerate() {
        let key = world.key(&format!("poison-{:02}", number + 1));
        match poison.fate {
            Fate::Sent => world.until_state(&key, "cleaned").await,
            Fate::Dead(class) => {
                let shown = world.show(&key).await;
                assert_eq!((&shown["state"], &shown["class"]), (&"dead".into(), &class.into()));
                let attempts = shown["attempts"].as_array().unwrap();
                assert!((1..=ATTEMPTS_MAX).contains(&attempts.len()), "{shown:#}");
                let outcome = attempts[0]["outcome"].as_str().unwrap();
                assert!(outcome.contains(class) && outcome.contains('('), "{shown:#}");
            }
            Fate::Fault(words) => {
                let reasons: Vec<&str> = status["faults"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|fault| fault["reason"].as_str().unwrap())
                    .collect();
                assert!(
                    reasons.iter().any(|reason| reason.contains(words)),
                    "{words}: {reasons:?}"
                );
            }
        }
    }
    assert!(told.contains("not UTF-8"), "{told}");
    assert!(!told.contains('@'), "{told}");
    only_one_recipient_each(&world, &server);
    println!(
        "n = {} poisons among {ordinary}: {sent} sent, {dead} dead letters, {faults} faults",
        poisons.len()
    );
    // Texts that nobody can read are in the way of the check, and of nothing else.
    let unread = "customer_id is null or customer_id not like 'customer-%'";
    world.shop.execute(&format!("delete from digest_items where {unread}")).await;
    world.check().await;
}

/// Whatever a name holds: one recipient, and no header that nobody wrote.
fn only_one_recipient_each(world: &World, server: &SmtpServer) {
    let record = server.record();
    let rcpt = record.commands.iter().filter(|(_, line)| line.starts_with("RCPT")).count();
    assert_eq!(rcpt, record.stored.len(), "a message has another number of recipients");
    assert!(!record.commands.iter().any(|(_, line)| line.contains(INJECTED)));
    let mut names = BTreeSet::new();
    for message in &record.stored {
        let text = String::from_utf8_lossy(message);
        let head = text.split("\r\n\r\n").next().unwrap();
        for line in head.split("\r\n").filter(|line| !line.starts_with([' ', '\t'])) {
            names.insert(line.split(':').next().unwrap().to_ascii_lowercase());
            assert!(!line.contains('\r') && !line.contains('\n'), "{line:?}");
        }
    }
    for injected in ["bcc", "cc"] {
        assert!(!names.contains(injected), "{}: {names:?}", world.campaign);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_poison_is_put_aside_and_nobody_else_waits() {
    poisoned("poison", 20).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_thousand_customers_do_not_wait_for_the_poisoned_ones() {
    poisoned("poison-1000", 1_000).await;
}
