use std::num::NonZeroUsize;
use std::path::Path;

use pjrt::{Client, DType, Device, Element, OptionValue, Plugin};

use super::{Mesh, Spread, spread};

/// The devices that a model is divided over: the client's first ones.
#[derive(Clone, Debug)]
pub(super) struct Place {
    client: Client,
    count: usize,
}

/// How many devices the CPU plugin plays, for the model is divided over as many.
const CPU_DEVICES: &str = "cpu_device_count";

impl Place {
    /// So many of the plugin's devices; where nothing is asked all of them, and of the CPU plugin's one: it has as many as any client in
    /// this process has asked for.
    pub(super) fn open(plugin: &Path, asked: Option<NonZeroUsize>) -> Result<Self, pjrt::Error> {
        let plugin = Plugin::load(plugin)?;
        let mut client = Client::new(&plugin, &[])?;
        let is_cpu = client.platform_name() == "cpu";
        let count = asked.map_or_else(|| if is_cpu { 1 } else { client.devices().len() }, usize::from);
        if is_cpu && count > client.devices().len() {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            client = Client::new(&plugin, &[(CPU_DEVICES, OptionValue::Int64(count))])?;
        }
        let there = client.devices().len();
        if count == 0 || there < count {
            let message = format!("{count} are asked for, the plugin has {there}");
            return Err(pjrt::Error::Argument { argument: "devices".to_owned(), message });
        }
        Ok(Self { client, count })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn devices(&self) -> &[Device] {
        &self.client.devices()[..self.count]
    }

    pub(super) fn mesh(&self) -> Mesh {
        Mesh::over(self.count)
    }

    /// The same on every device.
    pub(super) fn put<T: Element>(&self, elements: &[T], dims: &[i64]) -> Result<Spread, pjrt::Error> {
        self.each(|device| self.client.buffer_from_slice(elements, dims, device))
    }

    /// As [`Place::put`], of booleans, a byte each.
    pub(super) fn put_booleans(&self, bytes: &[u8], dims: &[i64]) -> Result<Spread, pjrt::Error> {
        self.each(|device| self.client.buffer_from_host(bytes, DType::Pred, dims, device))
    }

    pub(super) fn put_scalar(&self, value: u32) -> Result<Spread, pjrt::Error> {
        self.put(&[i32::try_from(value).unwrap_or(i32::MAX)], &[])
    }

    /// To each device its share of an array that is cut evenly along an axis.
    pub(super) fn put_cut(
        &self,
        elements: &[f32],
        dims: &[usize],
        axis: usize,
    ) -> Result<Spread, pjrt::Error> {
        let mut own: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
        if self.count == 1 {
            return self.put(elements, &own);
        }
        own[axis] /= self.count as i64;
        let mut shares = spread::cut(elements, dims, axis, self.count).into_iter();
        self.each(|device| self.client.buffer_from_slice(&shares.next().unwrap_or_default(), &own, device))
    }

    /// To each device its number.
    pub(super) fn put_numbers(&self) -> Result<Spread, pjrt::Error> {
        let mut numbers = 0i32..;
        self.each(|device| self.client.buffer_from_slice(&[numbers.next().unwrap_or_default()], &[], device))
    }

    /// What a function makes on each device, in order.
    pub(super) fn each(
        &self,
        make: impl FnMut(&Device) -> Result<pjrt::Buffer, pjrt::Error>,
    ) -> Result<Spread, pjrt::Error> {
        Ok(Spread::new(self.devices().iter().map(make).collect::<Result<_, _>>()?))
    }
}
