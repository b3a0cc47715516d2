//! `digestd hold`, `resume` and `cancel`.

use super::bench::{last_week, ready, server};
use std::time::{Duration, Instant};

#[tokio::test]
async fn held_operations_go_on_at_once_after_resume() {
    let Some(server) = server(true).await else { return };
    let shop = ready(&server, 5).await;
    let week = last_week();
    // Before the run exists, and again.
    let held = shop.digestd(&format!("hold --period {week} --reason \"wrong prices\" --by ann"));
    assert_eq!(held.code, 0, "{}", held.err);
    let again = shop.digestd(&format!("hold --period {week} --reason other"));
    assert_eq!(again.code, 3, "{}", again.err);
    assert!(again.out.contains("wrong prices"), "{}", again.out);

    let _worker = shop.worker();
    shop.digestd(&format!("run --period {week}"));
    let status = shop.until("the held selection", week, |s| s["selected"] == 5).await;
    assert_eq!(
        (&status["state"], &status["held_because"]),
        (&"held".into(), &"wrong prices".into())
    );

    // Nobody is there to answer.
    let asked = shop.digestd(&format!("resume --period {week} --reason corrected"));
    assert_eq!(asked.code, 2);
    assert!(asked.err.contains("0 are too late") && asked.err.contains("--yes"), "{}", asked.err);
    assert_eq!(shop.status(week)["state"], "held");

    let resumed = shop.digestd(&format!("resume --period {week} --reason corrected --yes"));
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert!(!resumed.err.contains("not told"), "{}", resumed.err);
    let status = shop.until("the end of the run", week, |s| s["state"] == "closed").await;
    assert_eq!(status["sent"], 5);
    let again = shop.digestd(&format!("resume --period {week} --reason corrected --yes"));
    assert_eq!(again.code, 3, "{}", again.err);
}

/// Operations that were enqueued before the hold wait for a timer of minutes; whoever resumes, the
/// worker's own sweep tells them.
#[tokio::test]
async fn the_sweep_tells_operations_that_a_resume_elsewhere_has_freed() {
    let Some(server) = server(true).await else { return };
    let shop = ready(&server, 5).await;
    let week = last_week();
    // One attempt a second, so that most are still to come when the hold arrives.
    shop.edit("rate_per_second = 500", "rate_per_second = 0.2");
    let worker = shop.worker();
    shop.digestd(&format!("run --period {week}"));
    shop.until("the first delivery", week, |s| s["sent"] != 0 && s["selected"] == 5).await;
    shop.digestd(&format!("hold --period {week} --reason test"));
    let client = server.client("a test").await.unwrap();
    let teller = digestd::tell::Teller { client, campaign: "digest".to_owned() };
    let begun = Instant::now();
    while teller.waiting(week, &["held"]).await.unwrap().len() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(30), "the operations never waited");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let ledger = shop.ledger().await;
    let actor = digest_activities::ledger::Actor { by: "ann", reason: Some("test") };
    ledger.resume("digest", week, actor).await.unwrap();
    let begun = Instant::now();
    while !teller.waiting(week, &["held"]).await.unwrap().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(30), "nobody told the held operations");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(worker);
}

#[tokio::test]
async fn a_cancelled_run_sends_nothing_more_and_closes() {
    let Some(server) = server(true).await else { return };
    let shop = ready(&server, 4).await;
    let week = last_week();
    let unknown = shop.digestd(&format!("cancel --period {week} --reason x --yes"));
    assert_eq!(unknown.code, 1);
    assert!(unknown.err.contains("knows no run"), "{}", unknown.err);
    shop.digestd(&format!("hold --period {week} --reason test"));
    let _worker = shop.worker();
    shop.digestd(&format!("run --period {week}"));
    shop.until("the held selection", week, |s| s["selected"] == 4).await;
    let asked = shop.digestd(&format!("cancel --period {week} --reason withdrawn"));
    assert_eq!(asked.code, 2);
    assert!(asked.err.contains("suppresses 4 messages"), "{}", asked.err);
    let said = shop.digestd(&format!("cancel --period {week} --reason withdrawn --yes"));
    assert_eq!(said.code, 0, "{}", said.err);
    let status = shop.until("the end of the run", week, |s| s["state"] == "closed").await;
    assert_eq!((&status["suppressed"], &status["sent"]), (&4.into(), &0.into()));
    let again = shop.digestd(&format!("cancel --period {week} --reason withdrawn --yes"));
    assert_eq!(again.code, 3, "{}", again.err);
}

#[tokio::test]
async fn without_the_engine_the_decision_is_in_force_and_the_rest_is_told() {
    let Some(mut server) = server(true).await else { return };
    let shop = ready(&server, 1).await;
    server.kill();
    let week = last_week();
    let said = shop.digestd(&format!("hold --period {week} --reason test"));
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("not told") && said.err.contains("5 minutes"), "{}", said.err);
    assert_eq!(shop.status(week)["state"], "held");
    let said = shop.digestd(&format!("resume --period {week} --reason test --yes"));
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("within a minute"), "{}", said.err);
    assert_eq!(shop.status(week)["state"], "planned");
}
