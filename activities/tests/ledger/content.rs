//! Frozen content: the first rendering wins, it cannot change unnoticed, and it goes with its key.

use super::bench::{Bench, NOTHING, Place, TEST, begin, message, next_intent, on_both, selected};
use digest_activities::ledger::{BeginAnswer, LedgerError};
use digest_activities::message::Redacted;
use digest_workflows::operation::{
    Event, FailureClass, Intent, Note, OperationKey, ProviderRef, Rules, State,
};
use jiff::{SignedDuration, Timestamp};

on_both!(
    the_first_rendering_wins_byte_for_byte,
    a_stored_message_that_was_changed_is_refused,
    a_change_of_any_field_is_noticed,
    cleaning_drops_the_content_of_that_key_alone,
    nothing_is_stored_for_a_settled_operation,
    frozen_data_is_what_was_selected,
    a_text_message_is_stored_like_a_mail,
    the_same_content_under_another_key_is_known_as_long_as_it_can_matter,
    what_a_restore_took_may_have_been_anything,
);

async fn the_first_rendering_wins_byte_for_byte(place: Place) {
    let bench = place.bench(1).await;
    let key = bench.key(1);
    assert_eq!(bench.ledger.message(&key).await.unwrap(), None);
    let renderings = (0..20).map(|n| {
        let (ledger, key) = (bench.ledger.clone(), key.clone());
        tokio::spawn(async move {
            ledger.store_message(&key, &message(&format!("rendering {n}"))).await.unwrap()
        })
    });
    let mut stored = Vec::new();
    for rendering in futures::future::join_all(renderings).await {
        stored.push(rendering.unwrap());
    }
    let first = bench.ledger.message(&key).await.unwrap().unwrap();
    assert!(stored.iter().all(|message| *message == first));
    let shown = bench.ledger.show(&key).await.unwrap();
    assert_eq!(shown.content_hash, Some(first.content_hash.clone()));
    let late = bench.ledger.store_message(&key, &message("another")).await.unwrap();
    assert_eq!(late.mime.reveal(), first.mime.reveal());
}

async fn a_stored_message_that_was_changed_is_refused(place: Place) {
    let mut bench = place.bench(2).await;
    let other = message("other");
    for (customer, change) in [
        (1, "mime = (select mime from @messages where key like '%c-00002')".to_owned()),
        (2, format!("content_hash = '{}'", other.content_hash)),
    ] {
        let key = bench.key(customer);
        bench.ledger.store_message(&bench.key(2), &message("two")).await.unwrap();
        bench.ledger.store_message(&key, &message("one")).await.unwrap();
        bench.raw.execute(&format!("update @messages set {change} where key = '{key}'")).await;
        for result in [
            bench.ledger.message(&key).await.map(Option::unwrap),
            bench.ledger.store_message(&key, &message("one")).await,
        ] {
            let error = result.unwrap_err();
            assert!(matches!(error, LedgerError::Corrupt(_)) && !error.is_temporary(), "{error:?}");
            assert!(error.to_string().contains(&key.to_string()), "{error}");
        }
    }
}

/// What one provider takes from the bytes, another takes from the fields beside them.
async fn a_change_of_any_field_is_noticed(place: Place) {
    let mut bench = place.bench(1).await;
    let key = bench.key(1);
    bench.ledger.store_message(&key, &message("hello")).await.unwrap();
    let head = bench.raw.rows("select message from @messages").await[0][0].clone();
    let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&head).unwrap();
    let fields =
        fields.into_iter().filter(|(name, _)| !["mime", "content_hash"].contains(&&**name));
    let mut noticed = 0;
    for (name, value) in fields {
        let other = match value {
            serde_json::Value::Array(_) => serde_json::json!([["Reply-To", "x"]]),
            _ => serde_json::json!("bob@shop.example"),
        };
        let mut changed: serde_json::Value = serde_json::from_str(&head).unwrap();
        changed[&name] = other;
        bench.raw.execute(&format!("update @messages set message = '{changed}'")).await;
        let error = bench.ledger.message(&key).await.unwrap_err();
        assert!(matches!(error, LedgerError::Corrupt(_)), "{name}: {error:?}");
        assert!(error.to_string().contains(&key.to_string()), "{name}: {error}");
        noticed += 1;
    }
    assert_eq!(noticed, 7, "recipient, sender, from, subject, text, html, headers");
    bench.raw.execute(&format!("update @messages set message = '{head}'")).await;
    assert_eq!(bench.ledger.message(&key).await.unwrap(), Some(message("hello")));
}

async fn cleaning_drops_the_content_of_that_key_alone(place: Place) {
    let bench = place.bench(2).await;
    let (key, other) = (bench.key(1), bench.key(2));
    for key in [&key, &other] {
        bench.ledger.store_message(key, &message("hello")).await.unwrap();
    }
    let attempt = bench.begun(&key, NOTHING).await;
    // Cleanup runs only from sent.
    let early = bench.record(&key, Event::CleanedUp).await;
    assert_eq!(early.change.note, Some(Note::DoesNotApply));
    assert!(bench.ledger.message(&key).await.unwrap().is_some());
    bench.accepted(&key, attempt).await;

    let first = bench.record(&key, Event::CleanedUp).await;
    assert_eq!(first.change.to, State::Cleaned);
    let second = bench.record(&key, Event::CleanedUp).await;
    assert_eq!(second.change.note, Some(Note::AlreadyRecorded));
    assert_eq!(second.answer.operation, first.answer.operation);

    assert_eq!(bench.ledger.message(&key).await.unwrap(), None);
    assert_eq!(bench.ledger.frozen_data(&key).await.unwrap(), None);
    let shown = bench.ledger.show(&key).await.unwrap();
    assert_eq!(shown.content_hash, Some(message("hello").content_hash));
    assert!(bench.ledger.message(&other).await.unwrap().is_some());
    assert!(bench.ledger.frozen_data(&other).await.unwrap().is_some());
}

/// An execution that was stalled while another finished must not leave content behind.
async fn nothing_is_stored_for_a_settled_operation(place: Place) {
    let bench = place.bench(1).await;
    let key = bench.key(1);
    bench.deliver_and_clean(&key).await;
    let error = bench.ledger.store_message(&key, &message("late")).await.unwrap_err();
    assert!(matches!(error, LedgerError::Settled(_)) && !error.is_temporary(), "{error:?}");
    assert_eq!(bench.ledger.message(&key).await.unwrap(), None);
    let stranger = bench.ledger.store_message(&bench.key(9), &message("late")).await;
    assert!(matches!(stranger, Err(LedgerError::NoSuchOperation(_))));
}

async fn frozen_data_is_what_was_selected(place: Place) {
    let bench = place.bench(1).await;
    let data = bench.ledger.frozen_data(&bench.key(1)).await.unwrap();
    assert_eq!(data, Some(selected(bench.period, 1).data));
    assert!(!format!("{data:?}").contains("anna"), "it shows nothing when printed");
}

/// It has no bytes, no subject and no headers.
async fn a_text_message_is_stored_like_a_mail(place: Place) {
    let bench = place.bench(1).await;
    let mut text = message("Grüße 🎉");
    text.mime = Redacted::new(Vec::new());
    text.subject = Redacted::new(String::new());
    let text = text.sealed();
    assert!(text.length().is_some());
    bench.ledger.store_message(&bench.key(1), &text).await.unwrap();
    assert_eq!(bench.ledger.message(&bench.key(1)).await.unwrap(), Some(text));
}

/// Begins the next attempt of `key` with a message of this content, through `provider`.
async fn hands_over(bench: &Bench, key: &OperationKey, provider: &str, content: &str) {
    let intent = next_intent(&bench.operation(key).await, NOTHING);
    let provider = ProviderRef { kind: provider.to_owned(), account: "test".to_owned() };
    let intent = Intent { provider, content_hash: content.to_owned(), ..intent };
    let begun = begin(&bench.ledger, key, &intent).await.unwrap();
    assert!(matches!(begun, BeginAnswer::Begun(_)));
}

async fn the_same_content_under_another_key_is_known_as_long_as_it_can_matter(place: Place) {
    let bench = place.bench(4).await;
    let (ours, other) = (bench.key(1), bench.key(2));
    let since = bench.ledger.now().await.unwrap();
    let same = async |content: &str, since: Timestamp| {
        bench.ledger.has_same_content(&ours, content, since).await.unwrap()
    };
    hands_over(&bench, &ours, "twilio", "hello").await;
    hands_over(&bench, &bench.key(3), "sandbox", "hello").await;
    bench.closed(&bench.key(4), FailureClass::Transport, "no connection").await;
    hands_over(&bench, &other, "twilio", "good morning").await;
    assert!(!same("hello", since).await, "nobody else says hello");
    assert!(same("good morning", since).await);
    // Also once it is delivered and its content dropped, and no longer than it can still arrive.
    bench.accepted(&other, 1).await;
    bench.record(&other, Event::CleanedUp).await;
    assert!(same("good morning", since).await);
    let settled = since + SignedDuration::from_mins(17);
    assert!(same("good morning", settled).await);
    assert!(!same("good morning", settled + SignedDuration::from_mins(1)).await);
}

async fn what_a_restore_took_may_have_been_anything(place: Place) {
    let bench = place.bench(2).await;
    let since = bench.ledger.now().await.unwrap();
    hands_over(&bench, &bench.key(1), "twilio", "hello").await;
    assert!(!bench.ledger.has_same_content(&bench.key(1), "hello", since).await.unwrap());
    let rules = Rules::default();
    assert!(bench.ledger.restored(&bench.key(2), 1, &rules, TEST).await.unwrap());
    assert!(bench.ledger.has_same_content(&bench.key(1), "hello", since).await.unwrap());
}
