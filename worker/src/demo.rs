//! The demo: a Temporal server with its web UI, an SQLite ledger, a shop, a provider that fails on
//! purpose, and the worker, all in one process and one folder; one run, watched live.
//!
//! It is no simulation: what runs is the worker on a configuration like any other, and every command
//! works on it from a second terminal while it is up.

mod cast;
mod engine;
mod folder;
mod interrupts;
mod report;
mod shop;
mod show;
mod story;
mod view;

pub use interrupts::Interrupts;

use crate::assemble;
use crate::cli::Exit;
use crate::config::{Config, Secrets};
use crate::engine::binary::Binary;
use crate::engine::server::{DevServer, ServerOptions};
use crate::output;
use crate::service::Service;
use anyhow::{Context as _, anyhow};
use cast::Cast;
use digest_activities::ledger::Ledger;
use digest_activities::provider::sandbox::{Sandbox, SandboxProvider};
use digest_workflows::operation::Period;
use folder::Folder;
use jiff::Timestamp;
use show::Show;
use std::time::{Duration, Instant};
use temporalio_client::Client;
use tokio::sync::oneshot;
use view::View;

/// How long the worker may take to stop when the demo ends.
const STOP_TIME_MAX: Duration = Duration::from_secs(6);

/// What the demo is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many customers the shop has.
    pub customers: u32,
    /// End after the report instead of staying up.
    pub exit: bool,
    /// The last line on standard output is the run's status as JSON.
    pub json: bool,
}

/// Everything that a demo stands on, once it is up.
struct Stage {
    cast: Cast,
    binary: Binary,
    server: DevServer,
    config: Config,
    period: Period,
    ledger: Ledger,
    client: Client,
    provider: SandboxProvider,
}

/// Runs the demo until its end, or until it is interrupted.
///
/// # Errors
/// What kept it from starting or going on. Its folder, with the log, is kept then.
pub async fn run(options: Options, mut interrupts: Interrupts) -> anyhow::Result<Exit> {
    let begun = Instant::now();
    let mut folder = Folder::create()?;
    output::log_to_file(&folder.log())?;
    let ended = Box::pin(perform(options, begun, &mut folder, &mut interrupts)).await;
    if ended.is_err() {
        folder.keep();
    }
    ended.with_context(|| format!("the demo ended early; its log is {}", folder.log().display()))
}

async fn perform(
    options: Options,
    begun: Instant,
    folder: &mut Folder,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Exit> {
    let raised = tokio::select! {
        raised = raise(options, folder) => raised?,
        () = interrupts.nth(1) => return interrupted(options),
    };
    let (stage, service) = raised;
    let view = View::new(&stage, folder.path());
    let mut show = Show::new(&stage, folder, view, options, begun);
    let (stop, stopped) = oneshot::channel::<()>();
    let working = service.run(async {
        // Dropped or sent: both mean the end.
        let _ = stopped.await;
    });
    tokio::pin!(working);
    let shown = tokio::select! {
        shown = show.run() => shown,
        ended = &mut working => {
            Err(ended.err().unwrap_or_else(|| anyhow!("the worker stopped by itself")))
        }
        () = interrupts.nth(1) => Ok(()),
    };
    let reported = show.end();
    drop(stop);
    tokio::select! {
        ended = tokio::time::timeout(STOP_TIME_MAX, working) => {
            if let Ok(Err(error)) = ended {
                tracing::warn!(error = format!("{error:#}"), "the worker did not stop in order");
            }
        }
        () = interrupts.nth(2) => {}
    }
    stage.ledger.close().await;
    drop(stage.server);
    shown?;
    let Some(status) = reported else { return interrupted(options) };
    if !options.exit {
        folder.keep();
        output::say(&format!(
            "\nthe demo has ended; its ledger and logs stay in {}",
            folder.path().display()
        ))?;
        return Ok(Exit::Done);
    }
    if options.json {
        output::print(&serde_json::to_string(&status)?)?;
    }
    Ok(if status.needs_a_human() { Exit::NeedsHuman } else { Exit::Done })
}

/// Ctrl-C is how a demo that stays up ends; one that was asked for its report has not given it.
fn interrupted(options: Options) -> anyhow::Result<Exit> {
    output::say("interrupted before the run was over; everything of this demo is removed")?;
    Ok(if options.exit { Exit::Failed } else { Exit::Done })
}

/// Starts and creates everything; only the worker does not run yet.
async fn raise(options: Options, folder: &Folder) -> anyhow::Result<(Stage, Service)> {
    let cast = Cast { customers: options.customers };
    let binary = engine::find().await?;
    let server = DevServer::start(ServerOptions {
        binary: binary.clone(),
        file: None,
        ui: true,
        search_attributes: true,
    })
    .await?;
    let ui_url = server.ui_url().unwrap_or_default();
    folder.configure(&server.address().to_string(), &ui_url, cast)?;
    let config = Config::load(&folder.config())?;
    let calendar = config.calendar()?;
    let period = Period::of(Timestamp::now(), calendar.zone());
    let (_, tick) = calendar.window(period)?;
    shop::create(&folder.shop(), cast, tick).await?;
    // Nothing of the environment: a demo must never come near what somebody really sends with.
    let secrets = Secrets::default();
    let database = config.ledger_database(&secrets)?;
    let (ledger, _) = Ledger::set_up(database.url.reveal(), &config.ledger.schema).await?;
    let client = server.client("digestd demo").await?;
    let delivering = assemble::provider(&config, &secrets).await?;
    let provider = delivering.sandbox.as_ref().map(Sandbox::provider);
    let provider = provider.context("the demo's configuration has another provider")?;
    let service = Service::with(config.clone(), &secrets, client.clone(), delivering).await?;
    Ok((Stage { cast, binary, server, config, period, ledger, client, provider }, service))
}
