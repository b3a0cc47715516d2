//! Temporal's development server as a child process, for the demo and the tests.
//!
//! The server ends with its parent, however the parent ends: a small shell stands between them,
//! whose standard input is a pipe that only this process holds open. When the pipe closes, by drop,
//! exit or SIGKILL, the shell kills the server. (The kernel's parent-death signal would need unsafe
//! code, exists on Linux only, and follows the thread that started the child.) Both live in a process
//! group of their own, so Ctrl-C in a terminal reaches digestd alone, which then ends in its own order.

use super::EngineError;
use super::binary::Binary;
use super::connection::{Address, Target, connect};
use super::search_attributes;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use temporalio_client::Client;

/// Runs its arguments, and kills them when its standard input closes.
const UNTIL_STDIN_CLOSES: &str = r#"
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
{ read -r _ <&3; kill -9 "$server"; } >/dev/null 2>&1 &
watch=$!
wait "$server"
code=$?
kill "$watch" 2>/dev/null
exit "$code"
"#;

/// How long the server may take until it answers. It takes about a second.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// How often a start is tried when a port was taken by somebody else meanwhile.
const START_TRIES: usize = 3;

/// How many of its last lines are kept for an error text.
const LINES_KEPT: usize = 8;

/// Limits of the server that stand in the way of a whole deployment on one machine, raised out of the
/// way: calls to the namespace (2,400 a second by default), and among them list and count calls.
const DYNAMIC_CONFIG: [&str; 3] = [
    "frontend.namespaceRPS=100000",
    "frontend.rps=100000",
    "frontend.namespaceRPS.visibility=1000",
];

/// How to run a development server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The Temporal CLI.
    pub binary: Binary,
    /// The SQLite file that holds its state; `None` keeps it in memory.
    pub file: Option<PathBuf>,
    /// Whether it serves the web UI.
    pub ui: bool,
    /// Whether digestd's search attributes are registered.
    pub search_attributes: bool,
}

/// Why the development server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Its process could not be started.
    #[error(
        "starting {program} through /bin/sh failed: {source}; check that both exist and may run"
    )]
    Spawn {
        /// The Temporal CLI.
        program: String,
        /// What came back.
        source: std::io::Error,
    },
    /// No free ports could be had.
    #[error("finding free ports on 127.0.0.1 failed: {0}; check the limits on open sockets")]
    Ports(std::io::Error),
    /// Its process ended before it answered.
    #[error(
        "the Temporal development server ({program}) ended with {status} before it answered, and \
         said: {said}; run `{command}` to see it fail, or set TEMPORAL_CLI to another release"
    )]
    Ended {
        /// The Temporal CLI.
        program: String,
        /// How it ended.
        status: String,
        /// Its last lines.
        said: String,
        /// The command that was run.
        command: String,
    },
    /// It runs and does not answer.
    #[error(
        "the Temporal development server ({program}) did not answer within {} s; it said: {said}; \
         the last try: {last}; check how busy this machine is and start it again",
        START_TIMEOUT.as_secs()
    )]
    Silent {
        /// The Temporal CLI.
        program: String,
        /// Its last lines.
        said: String,
        /// What the last try to connect came back with.
        last: EngineError,
    },
    /// It keeps its state in memory, so a restart would lose it.
    #[error("the server keeps its state in memory, so it can't be restarted; start it with a file")]
    InMemory,
}

/// A running development server on 127.0.0.1. Killed when dropped, and when this process ends. It
/// depends on no runtime: it may be started in one and used in another.
#[derive(Debug)]
pub struct DevServer {
    options: ServerOptions,
    ports: Ports,
    process: Option<Process>,
}

/// The ports that a server is reached at.
#[derive(Clone, Copy, Debug)]
struct Ports {
    frontend: u16,
    ui: u16,
    http: u16,
    metrics: u16,
}

impl DevServer {
    /// Starts a server on free ports and waits until it answers, its namespace `default` exists, and
    /// its search attributes are registered if wanted.
    ///
    /// # Errors
    /// [`ServerError`]: it could not be started, ended, or did not answer in time.
    pub async fn start(options: ServerOptions) -> Result<Self, ServerError> {
        let mut tries = 1;
        loop {
            let ports = Ports::free().map_err(ServerError::Ports)?;
            let mut server = Self { options: options.clone(), ports, process: None };
            match server.run().await {
                Ok(()) => return Ok(server),
                Err(error) if tries < START_TRIES && error.is_port_taken() => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Kills it if it runs, and starts it on its file and its old ports; clients reconnect.
    ///
    /// # Errors
    /// As [`DevServer::start`], and [`ServerError::InMemory`].
    pub async fn restart(&mut self) -> Result<(), ServerError> {
        if self.options.file.is_none() {
            return Err(ServerError::InMemory);
        }
        let mut tries = 1;
        loop {
            self.kill();
            match self.run().await {
                Err(error) if tries < START_TRIES && error.is_port_taken() => tries += 1,
                result => return result,
            }
        }
    }

    /// Kills it with SIGKILL, as a crash would; when this returns it is gone. Does nothing when it
    /// does not run.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Where clients connect.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        local(self.ports.frontend)
    }

    /// The web UI, if it is served.
    #[must_use]
    pub fn ui_url(&self) -> Option<String> {
        self.options.ui.then(|| format!("http://{}", local(self.ports.ui)))
    }

    /// The server's own metrics, in Prometheus's text format.
    #[must_use]
    pub fn metrics_url(&self) -> String {
        format!("http://{}/metrics", local(self.ports.metrics))
    }

    /// A client of its namespace `default`, with nothing taken from the environment.
    ///
    /// # Errors
    /// As [`connect`].
    pub async fn client(&self, identity: &str) -> Result<Client, EngineError> {
        connect(&self.target(identity)).await
    }

    fn target(&self, identity: &str) -> Target {
        Target {
            address: Address::Local(self.address()),
            namespace: Some("default".to_owned()),
            identity: identity.to_owned(),
            search_attributes: self.options.search_attributes,
        }
    }

    /// Starts the process and waits until it answers.
    async fn run(&mut self) -> Result<(), ServerError> {
        let program = self.options.binary.path.display().to_string();
        let arguments = self.arguments();
        let process = Process::spawn(&self.options.binary.path, &arguments)
            .map_err(|source| ServerError::Spawn { program: program.clone(), source })?;
        let process = self.process.insert(process);
        let target = Target {
            address: Address::Local(local(self.ports.frontend)),
            namespace: Some("default".to_owned()),
            identity: "digestd".to_owned(),
            search_attributes: self.options.search_attributes,
        };
        let begun = Instant::now();
        loop {
            let last = match connect(&target).await {
                // Somebody else's server could answer at the port while ours could not bind it.
                Ok(_) if process.ended().is_none() => return Ok(()),
                Ok(_) => None,
                Err(error) => Some(error),
            };
            if let Some(status) = process.ended() {
                let command = std::iter::once(program.clone())
                    .chain(arguments.iter().map(|part| part.to_string_lossy().into_owned()))
                    .collect::<Vec<_>>()
                    .join(" ");
                let said = self.process.take().map_or_else(String::new, Process::last_lines);
                return Err(ServerError::Ended { program, status, said, command });
            }
            if let Some(last) = last
                && begun.elapsed() > START_TIMEOUT
            {
                let said = self.process.take().map_or_else(String::new, Process::last_lines);
                return Err(ServerError::Silent { program, said, last });
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    fn arguments(&self) -> Vec<OsString> {
        let Ports { frontend, ui, http, metrics } = self.ports;
        let mut arguments: Vec<OsString> =
            ["server", "start-dev", "--ip", "127.0.0.1", "--log-level", "error"]
                .map(OsString::from)
                .into();
        for (flag, port) in
            [("--port", frontend), ("--http-port", http), ("--metrics-port", metrics)]
        {
            arguments.extend([flag.into(), port.to_string().into()]);
        }
        if self.options.ui {
            arguments.extend(["--ui-port".into(), ui.to_string().into()]);
        } else {
            arguments.push("--headless".into());
        }
        if let Some(file) = &self.options.file {
            arguments.extend(["--db-filename".into(), file.into()]);
        }
        if self.options.search_attributes {
            for name in search_attributes::NAMES {
                arguments.extend(["--search-attribute".into(), format!("{name}=Keyword").into()]);
            }
        }
        for pair in DYNAMIC_CONFIG {
            arguments.extend(["--dynamic-config-value".into(), pair.into()]);
        }
        arguments
    }
}

impl ServerError {
    fn is_port_taken(&self) -> bool {
        matches!(self, Self::Ended { said, .. } if said.contains("address already in use"))
    }
}

const fn local(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

impl Ports {
    /// Four free ports. They are all held at once, so they differ, and each is left in TIME_WAIT: for
    /// a minute the system hands it to nobody who asks for any port, while a server that asks for
    /// this one gets it.
    fn free() -> std::io::Result<Self> {
        let held = [free_port()?, free_port()?, free_port()?, free_port()?];
        let [frontend, ui, http, metrics] = &held;
        Ok(Self { frontend: frontend.1, ui: ui.1, http: http.1, metrics: metrics.1 })
    }
}

fn free_port() -> std::io::Result<(TcpListener, u16)> {
    let listener = TcpListener::bind(local(0))?;
    let address = listener.local_addr()?;
    let client = TcpStream::connect(address)?;
    let (accepted, _) = listener.accept()?;
    // Whoever closes first keeps the TIME_WAIT: the listener's side.
    drop(accepted);
    drop(client);
    Ok((listener, address.port()))
}

/// The shell and the server below it. Dropping it kills both.
#[derive(Debug)]
struct Process {
    shell: Child,
    said: Arc<Mutex<VecDeque<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    fn spawn(program: &std::path::Path, arguments: &[OsString]) -> std::io::Result<Self> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", UNTIL_STDIN_CLOSES, "sh"])
            .arg(program)
            .args(arguments)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let said = Arc::new(Mutex::new(VecDeque::new()));
        let reader = shell.stderr.take().map(|stderr| {
            let said = Arc::clone(&said);
            // A thread and not a task: the server must outlive the runtime that started it.
            std::thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    let line = line.trim();
                    if line.is_empty() {
                        continue;
                    }
                    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                    if said.len() == LINES_KEPT {
                        said.pop_front();
                    }
                    said.push_back(line.to_owned());
                }
            })
        });
        Ok(Self { shell, said, reader })
    }

    /// How it ended, if it did.
    fn ended(&mut self) -> Option<String> {
        match self.shell.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(status.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Ends it and tells its last lines.
    fn last_lines(self) -> String {
        let said = Arc::clone(&self.said);
        drop(self);
        let said = said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_empty() {
            "nothing".to_owned()
        } else {
            said.iter().cloned().collect::<Vec<_>>().join(" / ")
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Should the shell have been killed alone, its other half sees the pipe close.
        drop(self.shell.stdin.take());
        // The group's id is the shell's, and can't be somebody else's before the shell is waited for.
        if self.ended().is_none() {
            kill_process_group(Pid::from_child(&self.shell), Signal::KILL).ok();
            self.shell.wait().ok();
        }
        // Its standard error closes when the server is gone, with its ports and its file.
        if let Some(reader) = self.reader.take() {
            reader.join().ok();
        }
    }
}
