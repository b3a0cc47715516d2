//! A provider that is the real one but for what a test bends.

use digest_activities::message::FrozenMessage;
use digest_activities::provider::{Found, Provider, Ready, Reply};
use digest_workflows::operation::{Contract, Failure, OperationKey, ProviderRef};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use std::sync::Arc;

/// What a preparation comes to.
pub(super) type Prepared = Result<Box<dyn Ready>, Failure>;

/// The provider `inner`, but prepared by `prepare`.
pub(super) struct Bent<F> {
    inner: Arc<dyn Provider>,
    prepare: F,
}

impl<F, P> Bent<F>
where
    F: Fn(Arc<dyn Provider>, OperationKey, FrozenMessage) -> P + Send + Sync + 'static,
    P: Future<Output = Prepared> + Send + 'static,
{
    pub(super) fn new(inner: Arc<dyn Provider>, prepare: F) -> Self {
        Self { inner, prepare }
    }
}

impl<F, P> Provider for Bent<F>
where
    F: Fn(Arc<dyn Provider>, OperationKey, FrozenMessage) -> P + Send + Sync + 'static,
    P: Future<Output = Prepared> + Send + 'static,
{
    fn provider_ref(&self) -> ProviderRef {
        self.inner.provider_ref()
    }

    fn contract(&self) -> Contract {
        self.inner.contract()
    }

    fn prepare<'a>(
        &'a self,
        key: &'a OperationKey,
        message: &'a FrozenMessage,
    ) -> BoxFuture<'a, Prepared> {
        (self.prepare)(Arc::clone(&self.inner), key.clone(), message.clone()).boxed()
    }

    fn look_up<'a>(
        &'a self,
        key: &'a OperationKey,
        message: Option<&'a FrozenMessage>,
        since: Timestamp,
    ) -> BoxFuture<'a, Found> {
        self.inner.look_up(key, message, since)
    }

    fn check(&self) -> BoxFuture<'_, Result<String, String>> {
        self.inner.check()
    }
}

struct Handing(BoxFuture<'static, Reply>);

impl Ready for Handing {
    fn hand_over(self: Box<Self>) -> BoxFuture<'static, Reply> {
        self.0
    }

    fn abandon(self: Box<Self>) -> BoxFuture<'static, ()> {
        drop(self);
        futures::future::ready(()).boxed()
    }
}

/// Ready to hand over by `reply`.
pub(super) fn handing(reply: impl Future<Output = Reply> + Send + 'static) -> Box<dyn Ready> {
    Box::new(Handing(reply.boxed()))
}
