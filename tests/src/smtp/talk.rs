//! One conversation of the scripted server.

use super::{Act, At, Ending, Script, Shared, TlsMode};
use data_encoding::BASE64;
use socket2::{SockRef, Socket};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Serves one connection to its end.
pub(super) async fn serve(
    stream: TcpStream,
    number: usize,
    script: Script,
    shared: &Shared,
) -> Ending {
    // A second handle on the same socket, to reset it from beneath TLS.
    let Ok(socket) = SockRef::from(&stream).try_clone() else { return Ending::ByServer };
    let mut talk = Talk { number, script, shared, socket, secure: false };
    let mode = shared.traits.tls.as_ref().map(|(mode, _)| *mode);
    match talk.start(stream, mode == Some(TlsMode::Implicit)).await {
        Err(ending) => ending,
    }
}

/// The conversation goes on, or it ended.
type Flow<T = ()> = Result<T, Ending>;

struct Talk<'a> {
    number: usize,
    script: Script,
    shared: &'a Shared,
    socket: Socket,
    secure: bool,
}

enum Never {}

impl Talk<'_> {
    async fn start(&mut self, stream: TcpStream, implicit: bool) -> Flow<Never> {
        if implicit {
            return self.start_secure(stream).await;
        }
        let mut plain = BufReader::new(stream);
        self.act(At::Greeting, &mut plain, "220 scripted.test ESMTP").await?;
        self.listen(&mut plain).await?;
        self.start_secure(plain.into_inner()).await
    }

    async fn start_secure(&mut self, stream: TcpStream) -> Flow<Never> {
        let Some((mode, authority)) = &self.shared.traits.tls else { return Err(Ending::ByServer) };
        let stream = authority.acceptor().accept(stream).await.map_err(|error| ending(&error))?;
        self.secure = true;
        let mut stream = BufReader::new(stream);
        if *mode == TlsMode::Implicit {
            self.act(At::Greeting, &mut stream, "220 scripted.test ESMTP").await?;
        }
        self.listen(&mut stream).await?;
        Err(Ending::ByServer)
    }

    /// Answers commands until STARTTLS.
    async fn listen<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        stream: &mut BufReader<S>,
    ) -> Flow {
        loop {
            let line = read_line(stream).await?;
            let command = String::from_utf8_lossy(&line).trim_end().to_owned();
            let verb = command.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
            self.shared.record.send_modify(|record| {
                record.commands.push((self.number, command.clone()));
            });
            match verb.as_str() {
                "EHLO" => self.act(At::Ehlo, stream, &self.offers()).await?,
                "STARTTLS" => {
                    if self.act(At::StartTls, stream, "220 2.0.0 Go on").await? {
                        return Ok(());
                    }
                    continue;
                }
                "AUTH" => self.authenticate(&command, stream).await?,
                "MAIL" => self.act(At::Mail, stream, "250 2.1.0 Ok").await?,
                "RCPT" => self.act(At::Rcpt, stream, "250 2.1.5 Ok").await?,
                "RSET" => self.act(At::Reset, stream, "250 2.0.0 Ok").await?,
                "DATA" => {
                    if self.act(At::Data, stream, "354 End data with <CR><LF>.<CR><LF>").await? {
                        self.receive(stream).await?;
                    }
                    continue;
                }
                "QUIT" => {
                    self.act(At::Quit, stream, "221 2.0.0 Bye").await?;
                    return Err(Ending::Quit);
                }
                _ => {
                    say(stream, "500 5.5.2 What?\r\n").await?;
                    continue;
                }
            };
        }
    }

    fn offers(&self) -> String {
        let traits = &self.shared.traits;
        let mut lines = vec!["scripted.test"];
        lines.extend(&traits.extensions);
        if !self.secure && matches!(traits.tls, Some((TlsMode::StartTls, _))) {
            lines.push("STARTTLS");
        }
        if self.secure && traits.account.is_some() {
            // CRAM-MD5 is there to be passed over.
            lines.push(if traits.login_only {
                "AUTH CRAM-MD5 LOGIN"
            } else {
                "AUTH CRAM-MD5 PLAIN"
            });
        }
        lines.push("ENHANCEDSTATUSCODES");
        let last = lines.len() - 1;
        let line = |(at, line)| format!("250{}{line}", if at == last { ' ' } else { '-' });
        lines.into_iter().enumerate().map(line).collect::<Vec<_>>().join("\r\n")
    }

    async fn authenticate<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        command: &str,
        stream: &mut BufReader<S>,
    ) -> Flow<bool> {
        let encoded = |text: &str| BASE64.encode(text.as_bytes());
        let is_right = match (self.shared.traits.account, command.strip_prefix("AUTH LOGIN")) {
            (None, _) => false,
            (Some((user, password)), None) => {
                command == format!("AUTH PLAIN {}", encoded(&format!("\0{user}\0{password}")))
            }
            (Some((user, password)), Some(_)) => {
                say(stream, &format!("334 {}\r\n", encoded("Username:"))).await?;
                let first = read_line(stream).await?;
                say(stream, &format!("334 {}\r\n", encoded("Password:"))).await?;
                let second = read_line(stream).await?;
                first.trim_ascii_end() == encoded(user).as_bytes()
                    && second.trim_ascii_end() == encoded(password).as_bytes()
            }
        };
        let answer = if is_right { "235 2.7.0 Welcome" } else { "535 5.7.8 Not you" };
        self.act(At::Auth, stream, answer).await
    }

    /// Reads a message up to its end.
    async fn receive<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        stream: &mut BufReader<S>,
    ) -> Flow {
        let mut message = Vec::new();
        let mut is_first = true;
        loop {
            let line = read_line(stream).await?;
            if std::mem::take(&mut is_first) && self.has(At::Body) {
                self.act(At::Body, stream, "").await?;
            }
            if line == b".\r\n" {
                break;
            }
            message.extend_from_slice(line.strip_prefix(b".").unwrap_or(&line));
        }
        self.shared.record.send_modify(|record| record.ends_of_data += 1);
        let mut act = self.next(At::Dot);
        if matches!(act, Act::Go) {
            act = Act::store_then(Act::Say("250 2.0.0 Ok: queued as 4XyZ1234AB"));
        }
        if let Act::Store(then) = act {
            self.shared.record.send_modify(|record| record.stored.push(message));
            act = *then;
        }
        self.perform(act, stream, "250 2.0.0 Ok").await.map(|_| ())
    }

    fn has(&self, at: At) -> bool {
        self.script.iter().any(|(point, _)| *point == at)
    }

    fn next(&mut self, at: At) -> Act {
        match self.script.iter().position(|(point, _)| *point == at) {
            Some(found) => self.script.remove(found).1,
            None => Act::Go,
        }
    }

    async fn act<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        at: At,
        stream: &mut BufReader<S>,
        ordinary: &str,
    ) -> Flow<bool> {
        let act = self.next(at);
        self.perform(act, stream, ordinary).await
    }

    /// Does one act; the flag says whether it was the ordinary one, or raw bytes that may hold it.
    async fn perform<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        act: Act,
        stream: &mut BufReader<S>,
        ordinary: &str,
    ) -> Flow<bool> {
        match act {
            Act::Go | Act::Store(_) => say(stream, &format!("{ordinary}\r\n")).await?,
            Act::Say(line) => {
                say(stream, &format!("{line}\r\n")).await?;
                return Ok(false);
            }
            Act::Raw(bytes) => say(stream, bytes).await?,
            Act::RawThenClose(bytes) => {
                say(stream, bytes).await?;
                return Err(Ending::ByServer);
            }
            Act::Close => return Err(Ending::ByServer),
            Act::Reset => {
                self.socket.set_linger(Some(Duration::ZERO)).ok();
                return Err(Ending::ByServer);
            }
            Act::Hang => {
                self.shared.record.send_modify(|record| record.silences += 1);
                return Err(read_to_end(stream).await);
            }
            Act::Stall => {
                self.shared.record.send_modify(|record| record.silences += 1);
                std::future::pending::<()>().await;
            }
            Act::Late(line) => {
                self.shared.record.send_modify(|record| record.silences += 1);
                let mut released = self.shared.released.subscribe();
                tokio::select! {
                    _ = released.wait_for(|released| *released) => {}
                    ending = read_to_end(stream) => return Err(ending),
                }
                say(stream, &format!("{line}\r\n")).await?;
            }
        }
        Ok(true)
    }
}

async fn say<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut BufReader<S>, text: &str) -> Flow {
    let said = async {
        stream.write_all(text.as_bytes()).await?;
        stream.flush().await
    };
    said.await.map_err(|error| ending(&error))
}

async fn read_line<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> Flow<Vec<u8>> {
    let mut line = Vec::new();
    match stream.read_until(b'\n', &mut line).await {
        Ok(_) if line.ends_with(b"\n") => Ok(line),
        Ok(_) => Err(Ending::Closed),
        Err(error) => Err(ending(&error)),
    }
}

async fn read_to_end<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> Ending {
    let mut chunk = [0_u8; 1024];
    loop {
        match stream.read(&mut chunk).await {
            Ok(0) => return Ending::Closed,
            Ok(_) => {}
            Err(error) => return ending(&error),
        }
    }
}

fn ending(error: &io::Error) -> Ending {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Ending::Reset,
        _ => Ending::Closed,
    }
}
