//! The binary as processes: commands with their output, and workers that are killed.

use super::{PATIENCE, World, until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What a command said.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    /// Its exit code.
    pub(crate) code: i32,
    /// Its results.
    pub(crate) stdout: String,
    /// What it said beside them.
    pub(crate) stderr: String,
}

/// A running worker; killed when dropped.
pub(crate) struct Worker {
    child: Child,
    log: PathBuf,
}

impl World {
    /// Runs one command to its end.
    pub(crate) async fn digestd(&self, line: &str) -> Said {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        self.digestd_with(&arguments).await
    }

    /// Runs one command, which must die at its crash point.
    pub(crate) async fn digestd_that_dies_at(&self, point: &str, arguments: &[&str]) {
        let mut command = self.command(arguments);
        command.env("DIGESTD_CRASH_AT", point);
        let said = self.ended(command, arguments).await;
        let name = point.split(':').next().unwrap();
        assert!(said.code == -1 && said.stderr.contains(&last_words(name)), "{said:?}");
    }

    /// Runs one command, whose arguments may have spaces, to its end.
    pub(crate) async fn digestd_with(&self, arguments: &[&str]) -> Said {
        self.ended(self.command(arguments), arguments).await
    }

    async fn ended(&self, command: Command, arguments: &[&str]) -> Said {
        let mut command = tokio::process::Command::from(command);
        let run = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = tokio::time::timeout(2 * PATIENCE, run)
            .await
            .unwrap_or_else(|_| panic!("digestd {arguments:?} does not end"))
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().unwrap_or(-1);
        Said { code, stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_digestd"));
        command
            .current_dir(self.folder())
            .args(arguments)
            .env("DIGESTD_UNSUBSCRIBE_SECRET", super::SECRET)
            .env("NO_COLOR", "1")
            .envs(self.variables.iter().copied())
            .env_remove("DIGESTD_CRASH_AT");
        command
    }

    /// Starts a worker and waits until it is ready.
    pub(crate) async fn worker(&self) -> Worker {
        self.worker_with(&[]).await
    }

    /// Starts a worker with one crash point armed and waits until it is ready.
    pub(crate) async fn worker_that_dies_at(&self, point: &str) -> Worker {
        self.worker_with(&[("DIGESTD_CRASH_AT", point)]).await
    }

    /// Starts a worker with these variables and waits until it is ready.
    pub(crate) async fn worker_with(&self, variables: &[(&str, &str)]) -> Worker {
        let mut worker = self.spawn_worker(variables);
        until("a worker that is ready", async || {
            if let Some(status) = worker.has_ended() {
                panic!("the worker ended with {status}: {}", worker.said());
            }
            worker.said().contains("the worker is ready").then_some(())
        })
        .await;
        worker
    }

    /// Starts a worker with these variables, which may or may not become ready.
    pub(crate) fn spawn_worker(&self, variables: &[(&str, &str)]) -> Worker {
        let number = self.workers.fetch_add(1, Ordering::SeqCst);
        let log = self.folder().join(format!("worker-{number}.log"));
        let child = self
            .command(&["worker"])
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Worker { child, log }
    }

    /// What all its workers have said.
    pub(crate) fn worker_logs(&self) -> String {
        let count = self.workers.load(Ordering::SeqCst);
        let read = |number| {
            std::fs::read_to_string(self.folder().join(format!("worker-{number}.log"))).unwrap()
        };
        (0..count).map(read).collect()
    }
}

impl Worker {
    /// Everything it has said.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// SIGKILL; when this returns it is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, without waiting for anything.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGSTOP: it does nothing any more, and knows nothing of it, until [`go_on`](Self::go_on).
    pub(crate) fn suspend(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// How it has ended, if it has.
    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Whether it was killed by its crash point.
    pub(crate) fn has_reached_its_point(&self) -> bool {
        self.said().contains(&last_words(""))
    }

    /// Waits until it has ended, for as long as `limit`.
    pub(crate) async fn ended_within(&mut self, limit: Duration) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.has_ended() {
                return status;
            }
            assert!(begun.elapsed() < limit, "it still runs after {limit:?}: {}", self.said());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until its crash point has killed it.
    pub(crate) async fn killed_by_itself(mut self) {
        use std::os::unix::process::ExitStatusExt as _;
        let status = self.ended_within(PATIENCE).await;
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "{}", self.said());
        assert!(self.has_reached_its_point(), "{}", self.said());
    }

    /// What it holds now: KiB of resident memory, and open files.
    pub(crate) fn holds(&self) -> (u64, usize) {
        let folder = PathBuf::from(format!("/proc/{}", self.child.id()));
        let status = std::fs::read_to_string(folder.join("status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let resident = resident.trim().trim_end_matches(" kB").parse().unwrap();
        (resident, std::fs::read_dir(folder.join("fd")).unwrap().count())
    }

    /// Where it answers health checks.
    pub(crate) async fn http(&self) -> String {
        until("the address of the health checks", async || {
            let said = self.said();
            let rest = said.split("API and console address=").nth(1)?;
            Some(format!("http://{}", rest.split_whitespace().next()?))
        })
        .await
    }
}

/// What a process says at its crash point; of any for an empty name.
fn last_words(point: &str) -> String {
    let end = "the process ends by SIGKILL";
    if point.is_empty() { end.to_owned() } else { format!("crash point {point}: {end}") }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
