//! Prometheus, the real one: its own reading of our rules, and a server that scrapes a worker.

use crate::absent::absent;
use crate::mail_server::{own_address, tools};
use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long it may take to start.
const PATIENCE: Duration = Duration::from_mins(1);

const HOW_TO_GET_IT: &str = "apt-get install prometheus, or mkdir -p target/tools/prometheus && \
                             cd target/tools/prometheus && apt-get download prometheus && \
                             dpkg-deb -x prometheus_*.deb .";

/// A running Prometheus; it ends with this value.
pub struct Prometheus {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Prometheus {
    /// Starts one that scrapes `target` each second and evaluates `rules`, its state in a folder of its
    /// own. `None`, after one line that says what is `not_tested`, where it is not installed.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(target: &str, rules: &Path, not_tested: &str) -> Result<Option<Self>> {
        let Some(program) = program("prometheus") else {
            absent("Prometheus", not_tested, HOW_TO_GET_IT);
            return Ok(None);
        };
        let folder = tempfile::tempdir()?;
        let mut config = String::from("global: { scrape_interval: 1s, evaluation_interval: 1s }\n");
        writeln!(config, "rule_files: [\"{}\"]", rules.canonicalize()?.display())?;
        writeln!(config, "scrape_configs:\n  - job_name: digestd")?;
        writeln!(config, "    static_configs: [{{ targets: [{target:?}] }}]")?;
        let file = folder.path().join("prometheus.yml");
        std::fs::write(&file, config)?;
        // It takes no socket from us, so the port is free for a moment; on an address that nobody
        // else uses, nobody else can take it meanwhile.
        let address = TcpListener::bind((own_address(), 0))?.local_addr()?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let child = Command::new(program)
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        let mut prometheus = Self { child, address, folder };
        let give_up = Instant::now() + PATIENCE;
        while !is_ready(address) {
            if let Some(status) = prometheus.child.try_wait()? {
                let log = prometheus.folder.path().join("log");
                bail!("prometheus ended with {status}: {}", std::fs::read_to_string(log)?);
            }
            ensure!(Instant::now() < give_up, "prometheus is not ready on {address}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Some(prometheus))
    }

    /// The base of its API's URLs.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/api/v1", self.address)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Whether it answers queries: it listens before it does.
fn is_ready(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /-/ready HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains(" 200 "))
}

/// What promtool says to `arguments` in `folder`. `None`, after one line that says what is
/// `not_tested`, where it is not installed.
///
/// # Errors
/// When it finds something wrong, with what it says.
pub fn promtool(folder: &Path, arguments: &[&str], not_tested: &str) -> Result<Option<String>> {
    let Some(program) = program("promtool") else {
        absent("promtool", not_tested, HOW_TO_GET_IT);
        return Ok(None);
    };
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .context("promtool does not run")?;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(output.status.success(), "promtool {arguments:?}: {said}");
    Ok(Some(said))
}

/// The machine's program, or the one unpacked into the target folder.
fn program(name: &str) -> Option<PathBuf> {
    [PathBuf::from("/"), tools().join("prometheus")]
        .into_iter()
        .map(|root| root.join("usr/bin").join(name))
        .find(|program| program.exists())
}
