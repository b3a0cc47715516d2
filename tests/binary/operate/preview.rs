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
