use super::*;
use axum::routing::post;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn what_was_begun_is_done_though_nobody_waits_for_it() {
    let (begun, go_on, ended) = <(Arc<Notify>, Arc<Notify>, Arc<Notify>)>::default();
    let done = Arc::new(AtomicBool::new(false));
    let handler = {
        let (begun, go_on, ended) = (Arc::clone(&begun), Arc::clone(&go_on), Arc::clone(&ended));
        let done = Arc::clone(&done);
        async move || {
            begun.notify_one();
            go_on.notified().await;
            done.store(true, Ordering::SeqCst);
            ended.notify_one();
        }
    };
    let app = Router::new().route("/", post(handler)).layer(from_fn(to_the_end));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(serve(listener, app, LIMITS));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    timeout(DEADLINE, begun.notified()).await.unwrap();
    drop(stream);
    // Nothing of the connection is left by when this one is answered.
    let mut next = TcpStream::connect(address).await.unwrap();
    next.write_all(b"GET /nothing HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let reading = tokio::io::AsyncReadExt::read_to_end(&mut next, &mut answer);
    timeout(DEADLINE, reading).await.unwrap().unwrap();
    assert!(!done.load(Ordering::SeqCst));
    go_on.notify_one();
    timeout(DEADLINE, ended.notified()).await.unwrap();
    assert!(done.load(Ordering::SeqCst));
    serving.abort();
}

#[tokio::test]
async fn a_defect_is_answered_as_one() {
    async fn broken() -> &'static str {
        panic!("planted")
    }
    let app = Router::new().route("/", get(broken)).layer(from_fn(to_the_end));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(serve(listener, app, LIMITS));
    crate::engine::install_tls_provider();
    let answer = reqwest::get(format!("http://{address}/")).await.unwrap();
    assert_eq!(answer.status(), 500);
    assert!(answer.text().await.unwrap().contains("a defect of digestd"));
    serving.abort();
}
