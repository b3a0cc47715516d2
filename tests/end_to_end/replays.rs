//! Dead letters that are sent again because somebody says so.

use crate::end_to_end::world::{PERIOD, counts, world};
use serde_json::Value;

#[tokio::test(flavor = "multi_thread")]
async fn a_replayed_dead_letter_goes_through_the_gates_again_under_its_key() {
    let fault = toml::toml! { customer = "customer-0002" kinds = ["reject"] times = 1 };
    let plan = world("replay").customers(2);
    let plan = plan.with("sandbox.fault", vec![toml::Value::Table(fault)]);
    let Some(world) = plan.start().await else { return };
    let _worker = world.worker().await;
    let run = world.digestd(&format!("run --period {PERIOD} --wait")).await;
    assert_eq!(run.code, 4, "{run:?}");
    counts(&world.status().await, &[("dead", 1), ("cleaned", 1)]);
    let (dead, sent) = (world.key("customer-0002"), world.key("customer-0001"));
    let letters = world.digestd("dead-letters --json").await;
    let letters: Value = serde_json::from_str(&letters.stdout).unwrap();
    assert_eq!(letters["operations"][0]["key"], dead.to_string(), "{letters:#}");

    // Without a period, or with one that was sent among them, nothing is sent.
    let replay = async |which: &str| {
        world.digestd(&format!("replay {which} --reason corrected --yes")).await.code
    };
    assert_eq!(replay(&format!("--key {dead}")).await, 2);
    assert_eq!(replay(&format!("--period {PERIOD} --key {dead} --key {sent}")).await, 1);
    assert_eq!(world.requests().len(), 2);

    assert_eq!(replay(&format!("--period {PERIOD} --key {dead}")).await, 0);
    world.until_state(&dead, "cleaned").await;
    let shown = world.show(&dead).await;
    assert_eq!(shown["attempts"][0]["generation"], 1, "{shown:#}");
    assert_eq!(shown["attempts"][1]["generation"], 2, "{shown:#}");
    let timeline = shown["timeline"].as_array().unwrap();
    let replayed = timeline.iter().find(|line| line["from"] == "dead").unwrap();
    assert_eq!((&replayed["to"], &replayed["reason"]), (&"sending".into(), &"corrected".into()));
    assert_eq!(world.requests().len(), 3);
    assert_eq!(replay(&format!("--period {PERIOD} --key {dead}")).await, 1, "it is sent by now");
    world.check().await;
}
