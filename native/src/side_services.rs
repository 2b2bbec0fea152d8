//! gRPC's health and reflection services, as tonic has them.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use http::{Request, Response};
use tonic::body::Body;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

use crate::clock;

type Service = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

pub struct SideServices {
    health: Service,
    reflection: Service,
    reflection_alpha: Service,
    reporter: HealthReporter,
    names: Vec<String>,
    is_usable: AtomicBool,
    /// By CLOCK_BOOTTIME, in nanoseconds: until when Python's event loop counts as being at work.
    alive_until: AtomicU64,
    told: Mutex<Option<bool>>,
}

impl SideServices {
    /// `names`: what clients may ask the health of. `descriptors`: an encoded FileDescriptorSet of what is served.
    pub fn new(names: Vec<String>, service: &str, descriptors: &[u8]) -> Result<Self, String> {
        let reporter = HealthReporter::new();
        let health = HealthServer::new(HealthService::from_health_reporter(reporter.clone()));
        let builder = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(descriptors)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                .with_service_name(service)
                .with_service_name("grpc.health.v1.Health")
        };
        let reflection = builder().build_v1().map_err(|error| error.to_string())?;
        let reflection_alpha = builder().build_v1alpha().map_err(|error| error.to_string())?;
        Ok(Self {
            health: BoxCloneSyncService::new(health),
            reflection: BoxCloneSyncService::new(reflection),
            reflection_alpha: BoxCloneSyncService::new(reflection_alpha),
            reporter,
            names,
            is_usable: AtomicBool::new(false),
            alive_until: AtomicU64::new(0),
            told: Mutex::new(None),
        })
    }

    /// Whether a path is of one of these: their calls may last.
    pub fn has(path: &str) -> bool {
        path.starts_with("/grpc.health.v1.Health/") || path.starts_with("/grpc.reflection.")
    }

    /// The service of a path, if it is one of these.
    pub fn find(&self, path: &str) -> Option<Service> {
        let (service, _) = path.strip_prefix('/')?.split_once('/')?;
        match service {
            "grpc.health.v1.Health" => Some(self.health.clone()),
            "grpc.reflection.v1.ServerReflection" => Some(self.reflection.clone()),
            "grpc.reflection.v1alpha.ServerReflection" => Some(self.reflection_alpha.clone()),
            _ => None,
        }
    }

    /// Answers one call.
    pub async fn answer(service: Service, request: Request<Body>) -> Response<Body> {
        match service.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// Python's event loop is at work until that moment, and says whether the server can be used.
    pub fn beat(&self, is_usable: bool, alive_until: u64) {
        self.alive_until.store(alive_until, Ordering::SeqCst);
        self.is_usable.store(is_usable, Ordering::SeqCst);
    }

    /// Tells those who watch, and those who will ask.
    pub async fn report(&self) {
        let is_alive = clock::boot_nanoseconds() < self.alive_until.load(Ordering::SeqCst);
        let is_serving = self.is_usable.load(Ordering::SeqCst) && is_alive;
        let before = self.told.lock().unwrap_or_else(PoisonError::into_inner).replace(is_serving);
        if before == Some(is_serving) {
            return;
        }
        let status = if is_serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in &self.names {
            self.reporter.set_service_status(name, status).await;
        }
    }
}
