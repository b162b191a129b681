//! Events as futures, and transfers that keep their host memory alive until the plugin is done with it.

use std::ffi::c_void;
use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use pjrt_sys as sys;

use crate::plugin::{Plugin, call};
use crate::{Error, Result};

/// Something the plugin finishes once: an execution, a copy, a buffer's definition.
///
/// As a future it resolves to the outcome; it may be awaited again and then answers the same. Dropping it cancels nothing.
pub struct Event {
    plugin: Arc<Plugin>,
    raw: NonNull<sys::PJRT_Event>,
    waiting: Option<Arc<Slot<()>>>,
}

// SAFETY: event calls are thread-safe in PJRT, and the slot is behind a mutex.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Event").field("ready", &self.is_ready()).finish()
    }
}

impl Event {
    /// Takes over an event.
    ///
    /// # Safety
    /// `raw` must be null or a live event of `plugin` that nothing else destroys.
    pub(crate) unsafe fn from_raw(plugin: &Arc<Plugin>, raw: *mut sys::PJRT_Event) -> Result<Self> {
        let raw = NonNull::new(raw).ok_or_else(|| null_result(plugin, "PJRT_Event"))?;
        Ok(Self { plugin: Arc::clone(plugin), raw, waiting: None })
    }

    /// Whether the outcome is known.
    pub fn is_ready(&self) -> bool {
        let mut args = sys::PJRT_Event_IsReady_Args { event: self.raw.as_ptr(), ..Default::default() };
        // SAFETY: the event is live. An error here reads as not ready; waiting for it then reports it.
        let asked = unsafe { call!(self.plugin, PJRT_Event_IsReady, &mut args) };
        asked.is_ok() && args.is_ready
    }

    /// Blocks until the outcome is known and returns it. Not for async tasks: await the event there.
    pub fn wait(&self) -> Result<()> {
        let mut args = sys::PJRT_Event_Await_Args { event: self.raw.as_ptr(), ..Default::default() };
        // SAFETY: the event is live.
        unsafe { call!(self.plugin, PJRT_Event_Await, &mut args) }
    }

    /// The outcome of an event that is ready. Asking earlier would abort the process, hence private.
    fn outcome(&self) -> Result<()> {
        let mut args = sys::PJRT_Event_Error_Args { event: self.raw.as_ptr(), ..Default::default() };
        // SAFETY: the event is live, and ready as the caller has seen.
        unsafe { call!(self.plugin, PJRT_Event_Error, &mut args) }
    }

    /// Runs `then` with the outcome once it is known: now if it is, else on a thread of the plugin. It must be short and must
    /// not block. `then` is dropped only after the event is ready, so it may own memory the plugin still uses.
    pub(crate) fn on_ready(&self, then: impl FnOnce(Result<()>) + Send + 'static) {
        let reaction = Box::new(Reaction { plugin: Arc::clone(&self.plugin), then: Box::new(then) });
        let user_arg = Box::into_raw(reaction);
        let mut args = sys::PJRT_Event_OnReady_Args {
            event: self.raw.as_ptr(),
            callback: Some(react),
            user_arg: user_arg.cast::<c_void>(),
            ..Default::default()
        };
        // SAFETY: the event is live; the callback takes over `user_arg` exactly once.
        let registered = unsafe { call!(self.plugin, PJRT_Event_OnReady, &mut args) };
        if let Err(error) = registered {
            // SAFETY: a refused registration never calls back, so the box is still ours.
            let reaction = unsafe { Box::from_raw(user_arg) };
            // What `then` owns may be in use until the event is ready.
            let outcome = self.wait().and(Err(error));
            (reaction.then)(outcome);
        }
    }
}

impl Future for Event {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if self.is_ready() {
            return Poll::Ready(self.outcome());
        }
        // The waker is stored before readiness is asked again: an event that became ready in between either finds the waker
        // or is seen as ready below.
        match &self.waiting {
            Some(slot) => slot.wake_later(context.waker()),
            None => {
                let slot = Arc::new(Slot::new());
                slot.wake_later(context.waker());
                let filled = Arc::clone(&slot);
                self.on_ready(move |outcome| filled.fill(outcome));
                self.waiting = Some(slot);
            }
        }
        match self.is_ready() {
            true => Poll::Ready(self.outcome()),
            false => Poll::Pending,
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let mut args = sys::PJRT_Event_Destroy_Args { event: self.raw.as_ptr(), ..Default::default() };
        // SAFETY: the event is live and ours. A destructor has nobody to report an error to.
        let _ = unsafe { call!(self.plugin, PJRT_Event_Destroy, &mut args) };
    }
}

type Then = Box<dyn FnOnce(Result<()>) + Send>;

struct Reaction {
    plugin: Arc<Plugin>,
    then: Then,
}

/// # Safety
/// Called once by the plugin with the `Reaction` registered for the event.
unsafe extern "C" fn react(error: *mut sys::PJRT_Error, user_arg: *mut c_void) {
    // SAFETY: `user_arg` is the box `on_ready` leaked, handed back once.
    let reaction = unsafe { Box::from_raw(user_arg.cast::<Reaction>()) };
    // SAFETY: the callback owns the error it is given.
    let outcome = unsafe { reaction.plugin.status("PJRT_Event_OnReady", error) };
    (reaction.then)(outcome);
}

pub(crate) fn null_result(plugin: &Plugin, what: &str) -> Error {
    Error::Plugin {
        path: plugin.path().to_owned(),
        message: format!("a call succeeded without returning its {what}"),
    }
}

/// A copy between host and device that gives back `T`, usually the host memory, when it is done.
///
/// Dropping it cancels nothing: the memory stays alive until the plugin is done with it.
#[derive(Debug)]
pub struct Transfer<T> {
    slot: Arc<Slot<T>>,
}

impl<T: Send + 'static> Transfer<T> {
    /// A transfer that ends with `event` and then hands out `value`, which stays where it is until then.
    pub(crate) fn boxed(event: &Event, value: Box<T>) -> Self {
        let slot = Arc::new(Slot::new());
        let filled = Arc::clone(&slot);
        event.on_ready(move |outcome| filled.fill(outcome.map(|()| *value)));
        Self { slot }
    }

    /// Blocks until it is done.
    pub fn wait(self) -> Result<T> {
        self.slot.wait()
    }
}

impl<T> Future for Transfer<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        // Stored first, read second, both under the lock of the slot.
        self.slot.wake_later(context.waker());
        match self.slot.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        }
    }
}

/// A value that arrives once, from any thread.
#[derive(Debug)]
struct Slot<T> {
    state: Mutex<State<T>>,
    arrived: Condvar,
}

#[derive(Debug)]
struct State<T> {
    outcome: Option<Result<T>>,
    waker: Option<Waker>,
}

impl<T> Slot<T> {
    fn new() -> Self {
        Self { state: Mutex::new(State { outcome: None, waker: None }), arrived: Condvar::new() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_later(&self, waker: &Waker) {
        let mut state = self.lock();
        match &mut state.waker {
            Some(known) => known.clone_from(waker),
            None => state.waker = Some(waker.clone()),
        }
    }

    fn fill(&self, outcome: Result<T>) {
        let waker = {
            let mut state = self.lock();
            state.outcome = Some(outcome);
            state.waker.take()
        };
        self.arrived.notify_all();
        // Outside the lock: a waker may poll at once.
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn take(&self) -> Option<Result<T>> {
        self.lock().outcome.take()
    }

    fn wait(&self) -> Result<T> {
        let mut state = self.lock();
        loop {
            match state.outcome.take() {
                Some(outcome) => return outcome,
                None => state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}
