//! `digestd schedule`.

use super::bench::{last_week, ready, server};

#[tokio::test]
async fn it_is_shown_resumed_and_paused() {
    let Some(server) = server(true).await else { return };
    let shop = ready(&server, 1).await;
    let shown = |paused: bool| {
        let said = shop.digestd("schedule show --json");
        let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        json["paused"] == paused
    };
    assert!(shown(true));
    assert_eq!(shop.digestd("schedule pause").code, 3, "it is paused already");
    let said = shop.digestd("schedule resume --note \"the first week is ready\"");
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("the next tick is"), "{}", said.out);
    let begun = std::time::Instant::now();
    while !shown(false) {
        assert!(begun.elapsed().as_secs() < 20, "it was never resumed");
    }
    assert_eq!(shop.digestd("schedule resume").code, 3);
    let text = shop.digestd("schedule show").out;
    assert!(text.contains("running") && text.contains("the first week is ready"), "{text}");

    // What differs from the configuration is not resumed.
    shop.edit("\"0 9 * * MON\"", "\"0 9 * * TUE\"");
    let said = shop.digestd("schedule resume");
    assert_eq!(said.code, 2);
    assert!(said.err.contains("digestd setup"), "{}", said.err);
    assert!(shop.digestd("check").line("schedule").starts_with("problem "));
    shop.edit("\"0 9 * * TUE\"", "\"30 2 * * SUN\"");
    let said = shop.digestd("schedule resume");
    assert_eq!(said.code, 2);
    assert!(said.err.contains("the nearest safe time"), "{}", said.err);
}

#[tokio::test]
async fn a_past_week_is_made_up_for_once() {
    let Some(server) = server(true).await else { return };
    let shop = ready(&server, 3).await;
    let _worker = shop.worker();
    let week = last_week();
    let said = shop.digestd(&format!("schedule backfill --period {week}"));
    assert_eq!(said.code, 0, "{}", said.err);
    let status = shop.until("the end of the run", week, |s| s["state"] == "closed").await;
    assert_eq!((&status["sent"], &status["held_because"]), (&3.into(), &serde_json::Value::Null));
    let again = shop.digestd(&format!("schedule backfill --period {week}"));
    assert_eq!(again.code, 3, "{}", again.err);
    assert!(again.err.contains("already ran"), "{}", again.err);
}
