//! What the engine's SDK counts: polls, workflow tasks, activities, its cache. The SDK serves its numbers
//! on an address of its own, here a free port of loopback, and they are passed on from there.

use anyhow::Context;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use temporalio_common::telemetry::metrics::CoreMeter;
use temporalio_common::telemetry::{
    PrometheusExporterOptions, TelemetryOptions, start_prometheus_metric_exporter,
};
use tokio::task::AbortHandle;

/// How long the SDK may take to tell.
const PATIENCE: Duration = Duration::from_secs(2);

/// The SDK's numbers.
pub struct EngineMetrics {
    meter: Arc<dyn CoreMeter>,
    url: String,
    client: reqwest::Client,
    serving: AbortHandle,
}

impl EngineMetrics {
    /// Begins to count. Needs a Tokio runtime.
    ///
    /// # Errors
    /// When no port of loopback can be had.
    pub fn start() -> anyhow::Result<Self> {
        let options = PrometheusExporterOptions::builder()
            .socket_addr(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
            .counters_total_suffix(true)
            .unit_suffix(true)
            .use_seconds_for_durations(true)
            .build();
        let started = start_prometheus_metric_exporter(options)
            .context("the engine's SDK cannot serve its metrics on a port of 127.0.0.1")?;
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?;
        let url = format!("http://{}/metrics", started.bound_addr);
        Ok(Self { meter: started.meter, url, client, serving: started.abort_handle })
    }

    /// What the SDK is to be started with.
    #[must_use]
    pub fn telemetry(&self) -> TelemetryOptions {
        TelemetryOptions::builder().metrics(Arc::clone(&self.meter)).build()
    }

    /// The numbers in the text format of Prometheus; empty if they do not come in time.
    pub async fn text(&self) -> String {
        let text =
            async { self.client.get(&self.url).send().await?.error_for_status()?.text().await };
        text.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the engine's SDK did not tell its metrics");
            String::new()
        })
    }
}

impl Drop for EngineMetrics {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
