//! Parts of a deployment inside the test's process: a worker whose provider is another one than the
//! configuration's, and the gates without an engine that drives them.

use super::World;
use digest_activities::gates::Parts;
use digest_activities::provider::Provider;
use digest_activities::provider::sandbox::{Behaviour, Sandbox};
use digestd::assemble::{self, Delivering};
use digestd::service::Service;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{oneshot, watch};

/// The worker; it drains and ends with [`stop`](Self::stop).
pub(crate) struct Within {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// The gates, to be called by a test in the engine's place.
pub(crate) struct Bench {
    /// What they stand on.
    pub(crate) parts: Arc<Parts>,
    /// The sandbox in this process, if it is the provider.
    pub(crate) sandbox: Option<Sandbox>,
    /// Kept, since a worker whose other end is gone would drain.
    _drain: watch::Sender<bool>,
}

impl Bench {
    /// Closes the ledger and stops the sandbox.
    pub(crate) async fn close(self) {
        self.parts.ledger.close().await;
        if let Some(sandbox) = self.sandbox {
            sandbox.stop().await;
        }
    }
}

impl World {
    /// The gates in this process.
    pub(crate) async fn bench(&self) -> Bench {
        let (config, secrets) = self.loaded();
        let Delivering { provider, sandbox } = assemble::provider(&config, &secrets).await.unwrap();
        Bench { sandbox, ..self.bench_with(provider).await }
    }

    /// The gates in this process, with connections of their own and this provider.
    pub(crate) async fn bench_with(&self, provider: Arc<dyn Provider>) -> Bench {
        let (config, secrets) = self.loaded();
        let (drain, draining) = watch::channel(false);
        let parts = assemble::parts(&config, &secrets, provider, draining).await.unwrap();
        Bench { parts: Arc::new(parts), sandbox: None, _drain: drain }
    }

    /// The sandbox that the configuration describes, in this process, where it outlives the worker.
    pub(crate) async fn sandbox_outside(&mut self) -> Sandbox {
        let (config, secrets) = self.loaded();
        let delivering = assemble::provider(&config, &secrets).await.unwrap();
        let sandbox = delivering.sandbox.unwrap();
        self.edit("provider.url", sandbox.url());
        sandbox
    }

    /// The sandbox that was at this address, started again on what it remembers.
    pub(crate) async fn sandbox_at(&self, address: SocketAddr) -> Sandbox {
        let (config, _) = self.loaded();
        let mut table = config.sandbox.clone();
        let log = table.remove("log").unwrap();
        let behaviour: Behaviour = table.try_into().unwrap();
        let log = self.folder().join(log.as_str().unwrap());
        Sandbox::start(behaviour, address, Some(log)).await.unwrap()
    }

    /// Starts a worker in a thread of this process. `wrap` makes its provider from the one that the
    /// configuration names.
    pub(crate) fn worker_within(
        &self,
        wrap: impl FnOnce(Arc<dyn Provider>) -> Arc<dyn Provider> + Send + 'static,
    ) -> Within {
        let (config, secrets) = self.loaded();
        let client = self.client.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let Delivering { provider, sandbox } =
                    assemble::provider(&config, &secrets).await.unwrap();
                let delivering = Delivering { provider: wrap(provider), sandbox };
                let service = Service::with(config, &secrets, client, delivering).await.unwrap();
                service.run(async { drop(stopped.await) }).await.unwrap();
            });
        });
        Within { stop, thread }
    }
}

impl Within {
    /// Lets it drain and end.
    pub(crate) fn stop(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }
}
