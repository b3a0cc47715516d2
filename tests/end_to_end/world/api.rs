//! A provider over HTTP: an API in the test's process, and a campaign that is sent through it.

use super::{Plan, Taken, World};
use digest_tests::api_server::{Act, ApiServer, Dialect};
use std::sync::Arc;

/// The credential of every provider's API here.
pub(crate) const API_KEY: (&str, &str) = ("DIGESTD_PROVIDER_API_KEY", "re_secret");

/// A campaign that is sent through an API which follows `script`.
pub(crate) async fn through(
    plan: Plan,
    dialect: impl Dialect,
    script: Vec<Act>,
) -> Option<(World, Arc<ApiServer>)> {
    let kind = dialect.kind();
    let server = ApiServer::start(Arc::new(dialect), None, script).await.unwrap();
    let server = Arc::new(server);
    let plan = plan.with("provider.kind", kind).with("provider.url", server.url());
    let mut world = plan.start().await?;
    let record = Arc::clone(&server);
    world.received_by(move || {
        let taken = record.record().taken.into_iter();
        taken.map(|taken| Taken { key: taken.key, at: None, body: None }).collect()
    });
    Some((world, server))
}
