//! `digestd preview`.

use super::bench::shop;

#[tokio::test]
async fn one_message_is_rendered_without_ledger_or_engine() {
    let shop = shop(None, 2).await;
    let said = shop.digestd("preview --customer 2");
    assert_eq!(said.code, 0, "{}", said.err);
    for part in [
        "From: Shop <digest@shop.example>",
        "To: c2@shop.example",
        "Message-ID: <digest.",
        "Subject: News for Customer 2",
        "- Tea & cups",
    ] {
        assert!(said.out.contains(part), "{part:?} is not in: {}", said.out);
    }
    let json = shop.digestd("preview --customer 2 --period 2026-W42 --json");
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["key"], "digest:2026-W42:2");
    assert_eq!(json["still_wanted"], true);
    assert_eq!(json["message"]["subject"], "News for Customer 2");
    assert!(!shop.path("ledger.db").exists(), "a preview has opened a ledger");
}

#[tokio::test]
async fn its_parts_are_written_into_a_folder() {
    let shop = shop(None, 1).await;
    shop.write("digest.html", "<p>{{ rows[0].title }}</p>");
    let said = shop.digestd("preview --customer 1 --out parts");
    assert_eq!(said.code, 0, "{}", said.err);
    let part = |name: &str| std::fs::read_to_string(shop.path("parts").join(name)).unwrap();
    assert_eq!(part("subject.txt"), "News for Customer 1");
    assert!(part("text.txt").starts_with("Hello Customer 1\n"));
    assert!(part("html.html").contains("Tea &amp; cups"));
    assert!(part("message.eml").contains("\r\nX-Operation-Key: digest:"));
    // A part that is gone from the campaign is not left behind.
    shop.edit("html = \"digest.html\"\n", "");
    assert_eq!(shop.digestd("preview --customer 1 --out parts").code, 0);
    assert!(!shop.path("parts/html.html").exists());
}

#[tokio::test]
async fn a_text_message_is_shown_with_its_length() {
    let shop = shop(None, 3).await;
    shop.edit("[campaign]", "[campaign]\nchannel = \"sms\"");
    shop.edit("\"Shop <digest@shop.example>\"", "\"Shop\"");
    shop.edit("subject = \"subject.txt\"\n", "");
    shop.edit("html = \"digest.html\"\n", "");
    shop.write(
        "digest.txt",
        "{{ name }}: {{ rows[0].title }}{% if name == 'Customer 2' %} “{{ 'x' * 90 }}”{% endif %}",
    );
    shop.sql("update customers set email = '+4915100000000'").await;
    let said = shop.digestd("preview --customer 1");
    assert_eq!(said.code, 0, "{}", said.err);
    let expected = "From: Shop\nTo: +4915100000000\nLength: 22 characters, GSM-7, 1 segment\n\n\
                    Customer 1: Tea & cups\n";
    assert_eq!(said.out, expected);
    let json = shop.digestd("preview --customer 2 --json");
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let length = &json["message"]["length"];
    assert_eq!((&length["encoding"], &length["segments"]), (&"UCS-2".into(), &2.into()), "{json}");
    assert!(json["message"]["subject"].is_null(), "{json}");
    assert_eq!(shop.digestd("preview --customer 1 --out parts").code, 0);
    assert!(shop.path("parts/text.txt").exists() && !shop.path("parts/message.eml").exists());

    shop.sql("update customers set email = '0151' where id = 3").await;
    let said = shop.digestd(&format!("run --dry-run --period {}", super::bench::last_week()));
    assert_eq!(said.code, 4, "{}", said.err);
    for part in [
        "would be sent in 1 segment, GSM-7",
        "would be sent in 2 segments, UCS-2",
        "dead letter: recipient (address not a phone number in e.164)",
        "3 in all",
    ] {
        assert!(said.out.contains(part), "{part:?} is not in: {}", said.out);
    }
    shop.edit("\"Shop\"", "\"Shop <digest@shop.example>\"");
    let said = shop.digestd("preview --customer 1");
    assert!(said.err.contains("[message] from is no sender of text messages"), "{}", said.err);
}

#[tokio::test]
async fn who_gets_nothing_is_told_why() {
    let shop = shop(None, 2).await;
    shop.sql("delete from items where customer_id = 1").await;
    let said = shop.digestd("preview --customer 1");
    assert_eq!(said.code, 0);
    assert!(said.out.contains("nothing to send"), "{}", said.out);
    let said = shop.digestd("preview --customer 99");
    assert_eq!(said.code, 1);
    assert!(said.err.contains("returns no row with this customer_id"), "{}", said.err);
    shop.write("digest.txt", "{{ missing }}");
    let said = shop.digestd("preview --customer 2");
    assert_eq!(said.code, 1);
    assert!(said.err.contains("dead letter"), "{}", said.err);
    assert!(!said.err.contains("c2@"), "{}", said.err);
}
