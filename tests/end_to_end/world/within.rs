//! A worker inside the test's process, whose provider is another one than the configuration's.

use super::World;
use digest_activities::provider::Provider;
use digestd::assemble::{self, Delivering};
use digestd::service::Service;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// The worker; it drains and ends with [`stop`](Self::stop).
pub(crate) struct Within {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl World {
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
