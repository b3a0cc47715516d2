use super::*;
use axum::routing::post;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(30);

/// Of the length of a minute: what a test does not try does not end its connections.
const LONG: Duration = Duration::from_mins(1);

const LIMITS: Limits = Limits {
    connections: 4,
    head: Duration::from_millis(300),
    connection: LONG,
    last_request: LONG,
};

const REQUEST: &str = "POST /webhook HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nevent";

async fn serving(app: Router, limits: Limits) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (address, tokio::spawn(serve(listener, app, limits)))
}

fn stored() -> Router {
    Router::new().route("/webhook", post(|body: String| async move { format!("stored {body}") }))
}

/// What comes on `stream` until the other side ends it.
async fn all(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // A reset ends it too.
    let _ = timeout(DEADLINE, stream.read_to_end(&mut text)).await.unwrap();
    String::from_utf8(text).unwrap()
}

async fn send(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn silent_connections_above_the_bound_keep_no_genuine_webhook_from_its_answer() {
    let (address, serving) = serving(stored(), LIMITS).await;
    let mut silent = Vec::new();
    for _ in 0..3 * LIMITS.connections {
        silent.push(send(address, "").await);
    }
    let answer = all(&mut send(address, REQUEST).await).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("stored event"), "{answer}");
    // Those that came before it were ended for it, and the others are in their turn.
    for mut stream in silent {
        all(&mut stream).await;
    }
    serving.abort();
}

#[tokio::test]
async fn a_head_that_does_not_become_whole_and_a_silence_after_an_answer_end_the_connection() {
    let (address, serving) = serving(stored(), LIMITS).await;
    let half = all(&mut send(address, "POST /webhook HTTP/1.1\r\nhost:").await).await;
    assert!(!half.contains("200"), "{half}");
    let answer = all(&mut send(address, REQUEST).await).await;
    assert!(answer.ends_with("stored event"), "{answer}");
    serving.abort();
}

#[tokio::test]
async fn a_connection_whose_answers_nobody_reads_is_ended() {
    let limits = Limits {
        connections: 1,
        connection: Duration::from_millis(300),
        last_request: Duration::from_millis(300),
        ..LIMITS
    };
    let (address, serving) = serving(stored(), limits).await;
    let mut greedy = send(address, REQUEST).await;
    let flood = tokio::spawn(async move {
        let many = REQUEST.repeat(1_000);
        while greedy.write_all(many.as_bytes()).await.is_ok() {}
    });
    timeout(DEADLINE, flood).await.unwrap().unwrap();
    let answer = all(&mut send(address, REQUEST).await).await;
    assert!(answer.ends_with("stored event"), "{answer}");
    serving.abort();
}

#[tokio::test]
async fn the_end_lets_a_request_that_has_begun_be_answered_and_takes_no_other() {
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, goes_on) = (Arc::clone(&begun), Arc::clone(&go_on));
    let app = Router::new().route(
        "/webhook",
        post(move || async move {
            begins.notify_one();
            goes_on.notified().await;
            "stored"
        }),
    );
    let (address, serving) = serving(app, Limits { head: LONG, ..LIMITS }).await;
    let mut silent = send(address, "").await;
    let mut stream = send(address, REQUEST).await;
    timeout(DEADLINE, begun.notified()).await.unwrap();
    serving.abort();
    assert_eq!(all(&mut silent).await, "");
    assert!(TcpStream::connect(address).await.is_err());
    go_on.notify_one();
    let answer = all(&mut stream).await;
    assert!(answer.ends_with("stored"), "{answer}");
}

#[tokio::test]
async fn a_slow_body_is_given_up_and_a_request_above_the_bound_waits_for_its_turn() {
    const HALF: &str = "POST /webhook HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nev";
    let app = in_turns(stored(), 1, Duration::from_millis(300));
    let (address, serving) = serving(app, LIMITS).await;
    let answer = all(&mut send(address, HALF).await).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    serving.abort();

    let begun = Arc::new(Notify::new());
    let begins = Arc::clone(&begun);
    let app = stored().layer(from_fn(move |request: Request, next: Next| {
        begins.notify_one();
        next.run(request)
    }));
    let (address, serving) = self::serving(in_turns(app, 1, LONG), LIMITS).await;
    let slow = send(address, HALF).await;
    timeout(DEADLINE, begun.notified()).await.unwrap();
    let mut next = send(address, REQUEST).await;
    assert!(timeout(Duration::from_millis(200), begun.notified()).await.is_err());
    drop(slow);
    let answer = all(&mut next).await;
    assert!(answer.ends_with("stored event"), "{answer}");
    serving.abort();
}
