//! One connection: a request is read as far as the script says, and answered or not.

use super::{Act, End, Phase, Record, Request, Response, Shared, Taken};
use digest_workflows::operation::FailureClass;
use serde_json::Value;
use socket2::SockRef;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// Between two bytes of a slow answer.
const DRIBBLE: Duration = Duration::from_millis(2);

pub(super) async fn serve(stream: TcpStream, act: Act, shared: &Shared) {
    // A second handle on the same socket, to reset it from beneath TLS.
    let Ok(socket) = SockRef::from(&stream).try_clone() else { return };
    if act == Act::Fail(Phase::Connected, End::Reset) {
        reset(&socket);
        return;
    }
    let ended = match &shared.authority {
        Some(authority) => match authority.acceptor().accept(stream).await {
            Ok(stream) => converse(stream, act, shared).await,
            Err(error) => Err(error),
        },
        None => converse(stream, act, shared).await,
    };
    match ended {
        Ok(End::Reset) => reset(&socket),
        Ok(_) => {}
        Err(_) => shared.record.send_modify(|record| record.given_up += 1),
    }
}

fn reset(socket: &socket2::Socket) {
    socket.set_linger(Some(Duration::ZERO)).ok();
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    act: Act,
    shared: &Shared,
) -> io::Result<End> {
    if let Act::Fail(Phase::Connected, end) = act {
        return ending(&mut stream, end, shared).await;
    }
    let (head, mut body) = read_head(&mut stream).await?;
    if let Act::Fail(Phase::Head, end) = act {
        return ending(&mut stream, end, shared).await;
    }
    let half = length(&head) / 2;
    read_up_to(&mut stream, &mut body, half).await?;
    if let Act::Fail(Phase::HalfBody, end) = act {
        return ending(&mut stream, end, shared).await;
    }
    read_up_to(&mut stream, &mut body, length(&head)).await?;
    let request = Request { body, ..head };
    shared.record.send_modify(|record| record.requests.push(request.clone()));
    let answer = match &act {
        Act::Fail(Phase::Received, end) => return ending(&mut stream, *end, shared).await,
        Act::Say(response) => response.clone(),
        _ => answer(&request, shared),
    };
    match act {
        Act::Fail(_, end) => ending(&mut stream, end, shared).await,
        Act::TakeThenSay(bytes, end) => {
            stream.write_all(&bytes).await?;
            stream.flush().await?;
            ending(&mut stream, end, shared).await
        }
        Act::TakeThenDribble => {
            for byte in encode(&answer) {
                stream.write_all(&[byte]).await?;
                stream.flush().await?;
                tokio::time::sleep(DRIBBLE).await;
            }
            ending(&mut stream, End::Close, shared).await
        }
        Act::Go | Act::Say(_) => {
            stream.write_all(&encode(&answer)).await?;
            stream.flush().await?;
            ending(&mut stream, End::Close, shared).await
        }
    }
}

/// What an ordinary provider answers; what it takes is recorded in the same step.
fn answer(request: &Request, shared: &Shared) -> Response {
    let mut response = None;
    shared.record.send_modify(|record| {
        if let Some(items) = shared.dialect.batch(request) {
            response = Some(take_batch(request, items, record, shared));
            return;
        }
        let Some(key) = shared.dialect.key(request) else {
            response = Some(shared.dialect.question(request, &record.taken));
            return;
        };
        if shared.is_throttled() {
            record.throttled += 1;
            response = Some(throttled(shared));
            return;
        }
        if shared.dialect.refuses(&request.json()) {
            response = Some(refused(shared, FailureClass::Recipient));
            return;
        }
        response = record
            .taken
            .iter()
            .find(|taken| taken.key == key)
            .and_then(|first| shared.dialect.again(first, request));
        if response.is_none() {
            let id = format!("message-{}", record.taken.len() + 1);
            response = Some(shared.dialect.accepted(&id));
            record.taken.push(Taken { key, id, request: request.clone() });
        }
    });
    response.unwrap_or_else(|| Response::new(500, ""))
}

/// What an ordinary provider answers to a batch: what it takes is recorded in the same step.
fn take_batch(
    request: &Request,
    items: Vec<(String, Value)>,
    record: &mut Record,
    shared: &Shared,
) -> Response {
    if shared.is_throttled() {
        record.throttled += 1;
        return throttled(shared);
    }
    let key = request.header("idempotency-key");
    let same_key = |(first, _): &&(Request, Response)| first.header("idempotency-key") == key;
    if let Some((first, answer)) = record.batches.iter().find(same_key).filter(|_| key.is_some()) {
        return if first.body == request.body {
            answer.clone()
        } else {
            Response::new(409, r#"{"name":"invalid_idempotent_request"}"#)
        };
    }
    let dialect = &shared.dialect;
    let refuses = |(_, message): &(String, Value)| dialect.refuses(message);
    let none = !dialect.is_per_item() && items.iter().any(refuses);
    let mut ids = Vec::new();
    for item in items {
        if none || refuses(&item) {
            ids.push(None);
            continue;
        }
        let (key, message) = item;
        let id = format!("message-{}", record.taken.len() + 1);
        let body = message.to_string().into_bytes();
        let request = Request { body, ..request.clone() };
        record.taken.push(Taken { key, id: id.clone(), request });
        ids.push(Some(id));
    }
    let answer = dialect.batch_answer(&ids);
    if !none {
        record.batches.push((request.clone(), answer.clone()));
    }
    answer
}

/// The refusal of one request too many.
fn throttled(shared: &Shared) -> Response {
    refused(shared, FailureClass::RateLimited).with("retry-after", "1")
}

/// The first documented refusal of this class.
fn refused(shared: &Shared, class: FailureClass) -> Response {
    let refusals = shared.dialect.refusals().into_iter();
    let mut of_class = refusals.filter(|(_, of)| *of == class);
    of_class.next().map_or_else(|| Response::new(500, ""), |(response, _)| response)
}

async fn ending<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    end: End,
    shared: &Shared,
) -> io::Result<End> {
    match end {
        End::Reset => {}
        End::Close => stream.shutdown().await?,
        End::Hang => {
            shared.record.send_modify(|record| record.silent += 1);
            let mut rest = [0; 1024];
            let gone = loop {
                match stream.read(&mut rest).await {
                    Ok(0) => break Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(_) => {}
                    Err(error) => break Err(error),
                }
            };
            shared.record.send_modify(|record| record.silent -= 1);
            return gone;
        }
    }
    Ok(end)
}

/// Reads a request's head, and what of its body came with it.
async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<(Request, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let body = bytes.split_off(end + 4);
            return Ok((parse(&String::from_utf8_lossy(&bytes)), body));
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn parse(head: &str) -> Request {
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Request { method, target, headers, body: Vec::new() }
}

fn length(head: &Request) -> usize {
    head.header("content-length").and_then(|length| length.parse().ok()).unwrap_or_default()
}

async fn read_up_to<S: AsyncRead + Unpin>(
    stream: &mut S,
    body: &mut Vec<u8>,
    length: usize,
) -> io::Result<()> {
    while body.len() < length {
        if stream.read_buf(body).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

fn encode(response: &Response) -> Vec<u8> {
    let mut head =
        format!("HTTP/1.1 {} Said\r\ncontent-length: {}\r\n", response.status, response.body.len());
    for (name, value) in &response.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend(&response.body);
    bytes
}
