//! Ranks on NVIDIA GPUs that communicate over NCCL; gradients stay on the devices.

use crate::error::request;
use crate::terminal::tell;
use anyhow::{Result, anyhow};
use candle_core::cuda_backend::cudarc::driver::CudaSlice;
use candle_core::cuda_backend::cudarc::nccl::result::NcclError;
use candle_core::cuda_backend::cudarc::nccl::{Comm, Id, NcclType, ReduceOp};
use candle_core::cuda_backend::{CudaStorage, CudaStorageSlice};
use candle_core::{CpuStorage, CudaDevice, Device, InplaceOp1, Layout, Tensor, WithDType};
use std::sync::Mutex;
use wave_train::Ranks;

/// Bytes of NCCL's unique id.
const ID: usize = 128;

/// Sets NCCL's own variable `NCCL_COMM_ID`, unless it is set: `MASTER_ADDR` and the port after
/// `MASTER_PORT`, which torchrun holds itself. Must be called before threads start.
pub(super) fn meet_at_master(variable: impl Fn(&str) -> Option<String>) -> Result<()> {
    const PLACE: &str = "NCCL_COMM_ID";
    if variable(PLACE).is_some() {
        return Ok(());
    }
    let (host, port) = (variable("MASTER_ADDR"), variable("MASTER_PORT"));
    let next = port
        .as_ref()
        .and_then(|port| port.parse::<u16>().ok()?.checked_add(1));
    let (Some(host), Some(next)) = (&host, next) else {
        return Err(request(format!(
            "MASTER_ADDR is {host:?} and MASTER_PORT {port:?}; expected torchrun's address and a port \
             below 65535, or {PLACE}=HOST:PORT"
        )));
    };
    // SAFETY: there is one thread.
    unsafe { std::env::set_var(PLACE, format!("{host}:{next}")) };
    Ok(())
}

/// The ranks, each with its own GPU.
pub(super) struct Nccl {
    rank: usize,
    size: usize,
    device: Device,
    communicator: Mutex<Communicator>,
}

/// Used by one thread at a time.
struct Communicator(Comm);

// SAFETY: NCCL's communicators are bound to a device, not to a thread; calls must not overlap.
unsafe impl Send for Communicator {}

impl Nccl {
    /// Joins the ranks of `others`; the first broadcasts the id.
    pub(super) fn among(others: &dyn Ranks, device: &CudaDevice) -> Result<Nccl> {
        let mut name = [0f32; ID];
        if others.rank() == 0 {
            let id = Id::new().map_err(|e| failed("create an id for the ranks", e))?;
            name = id.internal().map(|byte| byte as f32);
        }
        others.broadcast(&mut name);
        let id = Id::uninit(name.map(|byte| byte as std::ffi::c_char));
        Nccl::meet(others.rank(), others.size(), id, device)
    }

    /// Joins the ranks that meet at the address of `NCCL_COMM_ID`.
    pub(super) fn at_address(rank: usize, size: usize, device: &CudaDevice) -> Result<Nccl> {
        let id = Id::new().map_err(|e| failed("read NCCL_COMM_ID", e))?;
        Nccl::meet(rank, size, id, device)
    }

    fn meet(rank: usize, size: usize, id: Id, device: &CudaDevice) -> Result<Nccl> {
        let stream = device.cuda_stream();
        // NCCL uses the current device of the thread.
        stream.context().bind_to_thread()?;
        let comm = Comm::from_rank(stream, rank, size, id).map_err(|e| failed("start", e))?;
        Ok(Nccl {
            rank,
            size,
            device: Device::Cuda(device.clone()),
            communicator: Mutex::new(Communicator(comm)),
        })
    }

    /// Runs a collective on host values, through the device.
    fn with_host<T: WithDType>(&self, values: &mut [T], what: What) -> candle_core::Result<()> {
        let there = Tensor::from_slice(values, values.len(), &self.device)?;
        self.collective(&there, what)?;
        values.copy_from_slice(&there.to_vec1::<T>()?);
        Ok(())
    }

    /// Runs a collective on a contiguous device tensor, in place.
    fn collective(&self, values: &Tensor, what: What) -> candle_core::Result<()> {
        let communicator = self.communicator.lock();
        let communicator = communicator.unwrap_or_else(|poisoned| poisoned.into_inner());
        let comm = &communicator.0;
        values.inplace_op1(&Collective { comm, what })
    }

    /// Ends this process, and through its launcher the others, when a collective fails: no rank can go
    /// on without the others.
    fn or_end<T>(&self, result: candle_core::Result<T>) -> T {
        result.unwrap_or_else(|error| {
            tell(&format!(
                "wave: rank {} of {}: {error}",
                self.rank, self.size
            ));
            std::process::exit(1)
        })
    }
}

impl Ranks for Nccl {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn sum(&self, values: &mut [f32]) {
        self.or_end(self.with_host(values, What::Sum));
    }

    fn sum_f64(&self, values: &mut [f64]) {
        self.or_end(self.with_host(values, What::Sum));
    }

    fn broadcast(&self, values: &mut [f32]) {
        self.or_end(self.with_host(values, What::FromFirst));
    }

    fn sum_bucket(&self, bucket: Tensor) -> candle_core::Result<Tensor> {
        if !bucket.device().is_cuda() {
            return Ok(self.or_end(sum_on(bucket, &self.device, self)));
        }
        self.or_end(self.collective(&bucket, What::Sum));
        Ok(bucket)
    }
}

/// Sums a gradient bucket from another device.
fn sum_on(bucket: Tensor, device: &Device, ranks: &Nccl) -> candle_core::Result<Tensor> {
    let there = bucket.to_device(device)?;
    ranks.collective(&there, What::Sum)?;
    there.to_device(bucket.device())
}

#[derive(Clone, Copy)]
enum What {
    /// The sums over the ranks.
    Sum,
    /// The values of the first rank.
    FromFirst,
}

/// A collective as an in-place operation, in the stream of all other work on the tensor.
struct Collective<'a> {
    comm: &'a Comm,
    what: What,
}

impl Collective<'_> {
    fn call<T: NcclType>(&self, values: &mut CudaSlice<T>) -> candle_core::Result<()> {
        let done = match self.what {
            What::Sum => self.comm.all_reduce_in_place(values, &ReduceOp::Sum),
            What::FromFirst => self.comm.broadcast_in_place(values, 0),
        };
        done.map(drop)
            .map_err(|e| candle_core::Error::Msg(failed("exchange values", e).to_string()))
    }
}

impl InplaceOp1 for Collective<'_> {
    fn name(&self) -> &'static str {
        "nccl"
    }

    fn cpu_fwd(&self, _: &mut CpuStorage, _: &Layout) -> candle_core::Result<()> {
        candle_core::bail!("NCCL was given values in host memory")
    }

    fn cuda_fwd(&self, storage: &mut CudaStorage, layout: &Layout) -> candle_core::Result<()> {
        if !layout.is_contiguous() || layout.start_offset() != 0 {
            candle_core::bail!("NCCL was given values that are not contiguous: {layout:?}");
        }
        match &mut storage.slice {
            CudaStorageSlice::F32(values) => self.call(values),
            CudaStorageSlice::F64(values) => self.call(values),
            _ => candle_core::bail!("NCCL was given a type other than f32 and f64"),
        }
    }
}

fn failed(what: &str, error: NcclError) -> anyhow::Error {
    anyhow!(
        "NCCL cannot {what} ({:?}); set NCCL_DEBUG=INFO to see why",
        error.0
    )
}
