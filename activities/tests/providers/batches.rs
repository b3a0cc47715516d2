//! What every adapter that takes batches does with them: each message is taken once, whole, and told
//! apart where the provider tells them apart.

use crate::bench::{Bench, SECRET, key, message, soon};
use digest_activities::message::Redacted;
use digest_activities::provider::Reply;
use digest_activities::provider::batch::{BatchReply, Batches, FrozenBatch};
use digest_tests::api_server::{Act, Dialect, End, Phase, Response};
use digest_workflows::operation::{Batch, Failure, FailureClass, OperationKey, Replay};
use std::sync::Arc;

held_to! { [
    a_batch_is_taken_once_with_everything_in_it,
    the_same_batch_again_does_what_the_contract_says,
    a_message_is_the_same_in_a_batch_as_alone,
    a_refused_recipient_concerns_whom_the_contract_says,
    a_refusal_of_the_whole_is_one_to_all,
    only_what_is_documented_is_a_proof,
    a_failure_is_as_ambiguous_as_its_phase,
    an_answer_for_other_messages_is_no_answer,
    what_is_given_up_before_the_hand_over_was_never_said,
    nothing_private_is_ever_told,
];
    resend: digest_tests::api_server::Resend,
    postmark: digest_tests::api_server::Postmark,
    ses: digest_tests::api_server::Ses { bulk: true },
}

impl Bench {
    fn batches(&self) -> &dyn Batches {
        self.adapter.batches().unwrap()
    }

    /// The batch of these messages, whose recipients begin with `bad` where they are refused.
    fn frozen(&self, id: &str, members: &[(OperationKey, bool)]) -> FrozenBatch {
        let items: Vec<Vec<u8>> = members
            .iter()
            .map(|(key, bad)| {
                let mut message = message(key);
                if *bad {
                    message.recipient = Redacted::new("bad@shop.example".to_owned());
                }
                self.batches().item(key, &message).unwrap().unwrap()
            })
            .collect();
        let items: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
        let request = Redacted::new(self.batches().request(&items));
        FrozenBatch { key: id.to_owned(), request, members: members.len() }
    }

    async fn deliver_all(&self, batch: FrozenBatch) -> Result<BatchReply, Failure> {
        let ready = soon(self.batches().prepare()).await?;
        Ok(soon(ready.hand_over(batch)).await)
    }
}

fn members(count: u32) -> Vec<(OperationKey, bool)> {
    (1..=count).map(|number| (key(&format!("customer-{number:03}")), false)).collect()
}

async fn a_batch_is_taken_once_with_everything_in_it(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    let members = members(if bench.dialect.kind() == "ses" { 50 } else { 100 });
    assert!(!bench.adapter.contract().batch.is_none());
    let reply = bench.deliver_all(bench.frozen("batch-1", &members)).await.unwrap();
    let record = bench.server.record();
    assert_eq!(record.requests.len(), 1);
    let ids = record.taken.iter().map(|taken| Some(taken.id.clone()));
    let each = ids.map(|message_id| Reply::Accepted { message_id }).collect();
    assert_eq!(reply, BatchReply::Each(each));
    for ((key, _), taken) in members.iter().zip(&record.taken) {
        assert_eq!(taken.key, bench.dialect.expected(key));
        for part in bench.dialect.content(&taken.request) {
            assert_eq!(part.sent, (part.expected)(&message(key)), "{key}: {}", part.name);
        }
    }
}

async fn the_same_batch_again_does_what_the_contract_says(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    let members = members(3);
    let batch = bench.frozen("batch-1", &members);
    let first = bench.deliver_all(batch.clone()).await.unwrap();
    let second = bench.deliver_all(batch).await.unwrap();
    let times = match bench.adapter.contract().replay {
        Replay::ReturnsOriginal { .. } => {
            assert_eq!(first, second);
            1
        }
        Replay::RejectsDuplicate { .. } => panic!("no adapter with batches is like that"),
        Replay::None => 2,
    };
    for (key, _) in &members {
        assert_eq!(bench.taken(key), times);
    }
    if times == 1 {
        // Other members under the same key: an alarm, and nothing is sent.
        let other = bench.frozen("batch-1", &members[1..]);
        let reply = bench.deliver_all(other).await.unwrap();
        assert!(matches!(reply, BatchReply::Whole(Reply::Unknown(_))), "{reply:?}");
        assert_eq!(bench.server.record().taken.len(), members.len());
    }
}

async fn a_message_is_the_same_in_a_batch_as_alone(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    let key = key("customer-1842");
    bench.deliver(&key).await.unwrap();
    let alone = bench.server.record().requests[0].body.clone();
    let item = bench.batches().item(&key, &message(&key)).unwrap().unwrap();
    // Either the item is a request itself, or a request of one is what goes alone.
    assert!(alone == item || alone == bench.batches().request(&[&item]), "other bytes");
}

async fn a_refused_recipient_concerns_whom_the_contract_says(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    let mut members = members(5);
    members[2].1 = true;
    let reply = bench.deliver_all(bench.frozen("batch-1", &members)).await.unwrap();
    match (bench.adapter.contract().batch, reply) {
        (Batch::AllOrNothing, BatchReply::Whole(Reply::NotSent(failure))) => {
            assert_eq!(failure.class, FailureClass::Recipient);
            assert!(bench.server.record().taken.is_empty());
            let failure = failure.of_each_member();
            assert_eq!(failure.class, FailureClass::Overloaded, "it says nothing of any of them");
        }
        (Batch::PerItem, BatchReply::Each(replies)) => {
            for (((key, bad), reply), number) in members.iter().zip(&replies).zip(1..) {
                let refused = matches!(
                    reply,
                    Reply::NotSent(failure) if failure.class == FailureClass::Recipient
                );
                assert_eq!(refused, *bad, "{number}: {reply:?}");
                assert_eq!(bench.taken(key), usize::from(!*bad));
            }
        }
        (batch, reply) => panic!("{batch:?}: {reply:?}"),
    }
}

async fn a_refusal_of_the_whole_is_one_to_all(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    for (response, class) in bench.dialect.refusals() {
        bench.server.script([Act::Say(response.clone())]);
        match bench.deliver_all(bench.frozen("batch-1", &members(2))).await.unwrap() {
            BatchReply::Whole(Reply::NotSent(failure)) => {
                assert_eq!(failure.class, class, "{response:?}");
                let terminal = [FailureClass::Recipient, FailureClass::Schema];
                let class = failure.of_each_member().class;
                assert!(!terminal.contains(&class), "one fault would end them all: {response:?}");
            }
            reply => panic!("{response:?} became {reply:?}"),
        }
    }
    assert!(bench.server.record().taken.is_empty());
}

async fn only_what_is_documented_is_a_proof(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    let html = |status| Response::new(status, "<html>a proxy</html>");
    let others = [200, 201, 302, 400, 403, 404, 408, 409, 422, 500, 502, 503, 504].map(html);
    for response in bench.dialect.ambiguous().into_iter().chain(others) {
        bench.server.script([Act::Say(response.clone())]);
        let reply = bench.deliver_all(bench.frozen("batch-1", &members(2))).await.unwrap();
        let unknown = matches!(reply, BatchReply::Whole(Reply::Unknown(_)));
        assert!(unknown, "{response:?} became {reply:?}");
    }
}

async fn a_failure_is_as_ambiguous_as_its_phase(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    for phase in Phase::ALL {
        for end in [End::Close, End::Reset] {
            let id = format!("batch-{phase:?}-{end:?}");
            let key = key(&id);
            bench.server.script([Act::Fail(phase, end)]);
            let members = [(key.clone(), false), (crate::bench::key("other"), false)];
            let outcome = bench.deliver_all(bench.frozen(&id, &members)).await;
            let proven = match &outcome {
                Err(failure) | Ok(BatchReply::Whole(Reply::NotSent(failure))) => {
                    failure.class == FailureClass::Transport
                }
                Ok(BatchReply::Whole(Reply::Unknown(_))) => false,
                Ok(reply) => panic!("{phase:?} {end:?}: nothing was answered, and {reply:?}"),
            };
            assert!(!proven || phase == Phase::Connected, "{phase:?} {end:?}: {outcome:?}");
            assert_eq!(bench.taken(&key), usize::from(phase == Phase::Taken));
        }
    }
}

async fn an_answer_for_other_messages_is_no_answer(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    let ids = |count: usize| -> Vec<Option<String>> {
        (0..count).map(|number| Some(format!("id-{number}"))).collect()
    };
    for count in [0, 1, 2, 4] {
        bench.server.script([Act::Say(bench.dialect.batch_answer(&ids(count)))]);
        let reply = bench.deliver_all(bench.frozen("batch-1", &members(3))).await.unwrap();
        assert!(matches!(reply, BatchReply::Whole(Reply::Unknown(_))), "{count}: {reply:?}");
    }
    if let Some(answer) = bench.dialect.odd_entries() {
        // One entry that cannot be read is a doubt about its own message alone.
        bench.server.script([Act::Say(answer)]);
        let reply = bench.deliver_all(bench.frozen("batch-1", &members(4))).await.unwrap();
        let BatchReply::Each(replies) = reply else { panic!("{reply:?}") };
        assert_eq!(replies[0], Reply::Accepted { message_id: Some("a".to_owned()) });
        for reply in &replies[1..] {
            assert!(matches!(reply, Reply::Unknown(_)), "{reply:?}");
        }
    }
}

async fn what_is_given_up_before_the_hand_over_was_never_said(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    soon(soon(bench.batches().prepare()).await.unwrap().abandon()).await;
    drop(soon(bench.batches().prepare()).await.unwrap());
    let record = bench.server.until(|record| record.given_up == 2).await.unwrap();
    assert!(record.requests.is_empty() && record.taken.is_empty(), "{record:?}");
}

async fn nothing_private_is_ever_told(dialect: Arc<dyn Dialect>) {
    let bench = Bench::new(dialect, vec![]).await;
    let mut told = vec![format!("{:?}", bench.frozen("batch-1", &members(2)))];
    let refusals = bench.dialect.refusals().into_iter().map(|(response, _)| response);
    for response in refusals.chain(bench.dialect.ambiguous()) {
        bench.server.script([Act::Say(response)]);
        let batch = bench.frozen("batch-1", &members(2));
        told.push(format!("{:?}", bench.deliver_all(batch).await));
    }
    let mut refused = members(2);
    refused[0].1 = true;
    told.push(format!("{:?}", bench.deliver_all(bench.frozen("batch-2", &refused)).await));
    for text in told {
        assert!(!text.contains("ann") && !text.contains("shop.example"), "an address: {text}");
        assert!(!text.contains(SECRET), "the key is told: {text}");
    }
}
