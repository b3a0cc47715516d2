//! Links to the engine's web UI.

use crate::config::Config;
use digest_workflows::operation::{OperationKey, Period};

/// The namespace as links show it.
#[must_use]
pub fn namespace(config: &Config) -> &str {
    config.engine.namespace.as_deref().unwrap_or("default")
}

/// The workflow of an operation.
#[must_use]
pub fn of_operation(config: &Config, key: &OperationKey) -> String {
    of_workflow(config, &key.to_string())
}

/// The workflow of the run of `period`.
#[must_use]
pub fn of_run(config: &Config, period: Period) -> String {
    of_workflow(config, &digest_workflows::run_id(&config.campaign.name, period))
}

fn of_workflow(config: &Config, id: &str) -> String {
    // A key's own encoding has `%`, which a URL must carry encoded once more.
    let id = id.replace('%', "%25");
    format!("{}/namespaces/{}/workflows/{id}", config.engine.ui_url, namespace(config))
}
