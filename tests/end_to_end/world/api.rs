//! A provider over HTTP: an API in the test's process, and a campaign that is sent through it.

use super::{Plan, Taken, World};
use digest_tests::api_server::{Act, ApiServer, Dialect};
use std::collections::HashMap;
use std::sync::Arc;

/// The credential of every provider's API here.
pub(crate) const API_KEY: (&str, &str) = ("DIGESTD_PROVIDER_API_KEY", "re_secret");

/// A campaign that is sent through an API which follows `script`.
pub(crate) async fn through(
    plan: Plan,
    dialect: impl Dialect,
    script: Vec<Act>,
) -> Option<(World, Arc<ApiServer>)> {
    let dialect = Arc::new(dialect);
    let api: Arc<dyn Dialect> = dialect.clone();
    let server = Arc::new(ApiServer::start(api, None, script).await.unwrap());
    let plan = plan.with("provider.kind", dialect.kind()).with("provider.url", server.url());
    let customers = plan.customer_ids();
    let mut world = plan.start().await?;
    let record = Arc::clone(&server);
    let keys = customers.into_iter().map(|customer| world.key(&customer));
    let names: HashMap<String, String> =
        keys.map(|key| (dialect.expected(&key), key.to_string())).collect();
    world.received_by(move || {
        let taken = record.record().taken.into_iter();
        // A provider may know a key by its alias.
        let name = |carried: String| names.get(&carried).cloned().unwrap_or(carried);
        taken.map(|taken| Taken { key: name(taken.key), at: None, body: None }).collect()
    });
    Some((world, server))
}
