//! A server that a shell script prepares, runs and removes.

use anyhow::{Context, bail};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A running script. It is to end, with its server, when its standard input closes: so it ends with
/// the test process, however that ends, and leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Scripted {
    name: &'static str,
    child: Child,
}

impl Scripted {
    /// Starts `script` of the server `name` with these variables; as `user`, if the tests run as
    /// root.
    pub(crate) fn start(
        name: &'static str,
        script: &str,
        variables: &[(&str, &str)],
        user: Option<&str>,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .envs(variables.iter().copied())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if let Some(user) = user
            && number("id", &["-u"])? == 0
        {
            command.gid(number("id", &["-g", user])?);
            command.uid(number("id", &["-u", user])?);
        }
        let child = command.spawn().context("cannot start sh")?;
        Ok(Self { name, child })
    }

    /// Writes a line to the script.
    pub(crate) fn tell(&mut self, command: &str) -> anyhow::Result<()> {
        let input = self.child.stdin.as_mut().context("the script's input is closed")?;
        writeln!(input, "{command}").with_context(|| format!("the {} script is gone", self.name))
    }

    /// Fails, with what the script said, when it has ended.
    pub(crate) fn still_runs(&mut self) -> anyhow::Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let mut said = String::new();
        if let Some(errors) = &mut self.child.stderr {
            errors.read_to_string(&mut said)?;
        }
        bail!("the {} server ended with {status}: {said}", self.name);
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It was only ever for this test; there is nobody to tell.
        self.child.wait().ok();
    }
}

/// How often a server is started: its port may be taken by somebody else before it has it.
const STARTS_MAX: u32 = 5;

/// Starts a server on a free port of 127.0.0.1.
pub(crate) async fn on_a_free_port<T>(
    start: impl AsyncFn(u16) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut starts = 1;
    loop {
        match start(free_port()?).await {
            Err(_) if starts < STARTS_MAX => starts += 1,
            started => return started,
        }
    }
}

/// A port that is free now, and may be taken by somebody else before a server has it.
///
/// # Errors
/// Where no port can be had.
pub fn free_port() -> anyhow::Result<u16> {
    loop {
        // Below those that the kernel gives to whoever asks for none, which is soon somebody else.
        let random = RandomState::new().build_hasher().finish() % 20_000;
        let port = 12_000 + u16::try_from(random)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
}

/// The number a command prints.
fn number(command: &str, arguments: &[&str]) -> anyhow::Result<u32> {
    let output = Command::new(command).args(arguments).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| {
        format!("`{command} {}` printed no number; is there such a user?", arguments.join(" "))
    })
}
