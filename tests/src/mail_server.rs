//! Mail servers that are not ours: aiosmtpd, which takes and stores messages like any relay, and
//! Postfix's smtp-sink, whose options make it misbehave.

use crate::absent::absent;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(30);

const AIOSMTPD: &str = "python3 -m venv target/tools/python && \
                        target/tools/python/bin/pip install aiosmtpd==1.4.6";
const SMTP_SINK: &str = "apt-get install postfix, or mkdir -p target/tools/postfix && cd \
                         target/tools/postfix && apt-get download postfix && dpkg-deb -x postfix_*.deb .";

/// What a mail server does once it has stored a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterStoring {
    /// Says yes.
    Accept,
    /// Resets the connection without an answer.
    Abort,
    /// Never answers.
    Hang,
}

/// A running aiosmtpd on a loopback port of its own. It stores every message that it accepts, one
/// file each, before it answers, and ends with this value or with the process that started it.
pub struct MailServer {
    child: Child,
    port: u16,
    folder: TempDir,
}

impl MailServer {
    /// Starts one that accepts everything. `None`, after one line that says so, where aiosmtpd is
    /// not installed.
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::start_with(AfterStoring::Accept)
    }

    /// Starts one that does `after` with each message it has stored.
    #[must_use]
    pub fn start_with(after: AfterStoring) -> Option<Self> {
        let started = python_with("aiosmtpd").and_then(|python| Self::run(&python, after));
        if started.is_none() {
            absent("aiosmtpd", "delivery to a real mail server", AIOSMTPD);
        }
        started
    }

    fn run(python: &Path, after: AfterStoring) -> Option<Self> {
        let folder = tempfile::tempdir().ok()?;
        let mode = match after {
            AfterStoring::Accept => "accept",
            AfterStoring::Abort => "abort",
            AfterStoring::Hang => "hang",
        };
        let mut child = Command::new(python)
            .args(["-c", include_str!("mail_server.py")])
            .arg(folder.path())
            .arg(mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut line = String::new();
        let output = child.stdout.take()?;
        BufReader::new(output).read_line(&mut line).ok();
        let Ok(port) = line.trim().parse() else {
            child.kill().ok();
            child.wait().ok();
            return None;
        };
        Some(Self { child, port, folder })
    }

    /// The loopback port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The URL to put into `provider.url`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("smtp://127.0.0.1:{}", self.port)
    }

    /// The messages stored up to now, in no order.
    #[must_use]
    pub fn messages(&self) -> Vec<Vec<u8>> {
        files(self.folder.path())
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A running smtp-sink on a loopback address of its own, which dumps every message whose end of data it
/// read.
pub struct SmtpSink {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl SmtpSink {
    /// Starts one with these options, such as `["-q", "."]` to close after the dot. `None`, after one
    /// line that says so, where it is not installed.
    #[must_use]
    pub fn start(options: &[&str]) -> Option<Self> {
        let started = sink_command().and_then(|command| Self::run(command, options));
        if started.is_none() {
            absent("smtp-sink", "delivery to a server that fails on purpose", SMTP_SINK);
        }
        started
    }

    fn run(mut command: Command, options: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().ok()?;
        // It does not stay root, so whoever it becomes must be able to write here.
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(folder.path(), open).ok()?;
        if std::fs::metadata(folder.path()).ok()?.uid() == 0 {
            command.args(["-u", "nobody"]);
        }
        // It takes no socket from us, so the port is free for a moment; on an address that nobody
        // else uses, nobody else can take it meanwhile.
        let address = TcpListener::bind((own_address(), 0)).ok()?.local_addr().ok()?;
        let child = command
            .args(["-4", "-d", "%M."])
            .args(options)
            .arg(address.to_string())
            .arg("100")
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let sink = Self { child, address, folder };
        let give_up = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            if Instant::now() > give_up {
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(sink)
    }

    /// The URL to put into `provider.url`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("smtp://{}", self.address)
    }

    /// The messages dumped up to now, each behind a few lines about its envelope.
    #[must_use]
    pub fn messages(&self) -> Vec<Vec<u8>> {
        files(self.folder.path())
    }
}

impl Drop for SmtpSink {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A loopback address that only this process uses, another one each time.
pub(crate) fn own_address() -> Ipv4Addr {
    static COUNT: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high | 0x80, low, COUNT.fetch_add(1, Ordering::Relaxed).max(1))
}

/// A Python that has `module`: the one in the target folder, or the machine's.
#[must_use]
pub fn python_with(module: &str) -> Option<PathBuf> {
    let candidates = [tools().join("python/bin/python"), PathBuf::from("python3")];
    candidates.into_iter().find(|python| {
        let check = Command::new(python)
            .args(["-c", &format!("import {module}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        check.is_ok_and(|status| status.success())
    })
}

/// The machine's smtp-sink, or the one unpacked into the target folder with its libraries.
fn sink_command() -> Option<Command> {
    let unpacked = tools().join("postfix");
    for root in [Path::new("/"), &unpacked] {
        let program = root.join("usr/sbin/smtp-sink");
        if program.exists() {
            let mut command = Command::new(program);
            command.env("LD_LIBRARY_PATH", root.join("usr/lib/postfix"));
            return Some(command);
        }
    }
    None
}

/// Where tools for tests are kept: `tools` in the target folder.
pub(crate) fn tools() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), PathBuf::from);
    target.join("tools")
}

fn files(folder: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let whole = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    whole.filter_map(|entry| std::fs::read(entry.path()).ok()).collect()
}
