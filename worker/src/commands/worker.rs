//! `digestd worker`: runs until SIGTERM, then drains.

use crate::cli::Exit;
use crate::config::{Config, Secrets};
use crate::service::Service;
use tokio::signal::unix::{SignalKind, signal};

/// Runs the worker.
///
/// # Errors
/// What kept it from starting, naming the cure; or why the engine refused it.
pub(super) async fn run(config: Config) -> anyhow::Result<Exit> {
    let secrets = Secrets::from_env()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let service = Service::connect(config, &secrets).await?;
    service
        .run(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        })
        .await?;
    tracing::info!("the worker has stopped");
    Ok(Exit::Done)
}
