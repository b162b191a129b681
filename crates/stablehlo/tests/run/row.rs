//! One program, its inputs and what must come out.

use half::{bf16, f16};
use pjrt::{Buffer, Client, CompileOptions, Device};
use stablehlo::{DType, Element, Func, Mesh, Module, Type, Value};

/// A tensor on the host.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    ty: Type,
    bytes: Vec<u8>,
}

pub(crate) fn tensor<T: Element>(data: &[T], dims: &[i64]) -> Tensor {
    let mut bytes = Vec::new();
    for &value in data {
        value.write_bytes(&mut bytes);
    }
    Tensor { ty: T::DTYPE.tensor(dims), bytes }
}

/// A tensor of one dimension.
pub(crate) fn vector<T: Element>(data: &[T]) -> Tensor {
    tensor(data, &[data.len() as i64])
}

pub(crate) fn scalar<T: Element>(value: T) -> Tensor {
    tensor(&[value], &[])
}

impl Tensor {
    fn floats(&self) -> Vec<f64> {
        let words = |width| self.bytes.chunks_exact(width);
        match self.ty.dtype {
            DType::F16 => words(2).map(|w| f64::from(f16::from_le_bytes([w[0], w[1]]))).collect(),
            DType::BF16 => words(2).map(|w| f64::from(bf16::from_le_bytes([w[0], w[1]]))).collect(),
            DType::F32 => words(4).map(|w| f64::from(f32::from_le_bytes(w.try_into().unwrap()))).collect(),
            DType::F64 => words(8).map(|w| f64::from_le_bytes(w.try_into().unwrap())).collect(),
            other => panic!("{other} is not compared as a float"),
        }
    }

    /// Floats within a few roundings of f32, all else bit by bit.
    fn agrees(&self, other: &Tensor) -> bool {
        if self.ty != other.ty {
            return false;
        }
        if !self.ty.dtype.is_wide_float() {
            return self.bytes == other.bytes;
        }
        let close = |a: f64, b: f64| {
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 2e-6 * a.abs().max(b.abs()).max(1e-3)
        };
        self.floats().into_iter().zip(other.floats()).all(|(a, b)| close(a, b))
    }

    fn show(&self) -> String {
        match self.ty.dtype.is_wide_float() {
            true => format!("{} {:?}", self.ty, self.floats()),
            false => format!("{} {:?}", self.ty, self.bytes),
        }
    }

    fn upload(&self, client: &Client, device: &Device) -> Buffer {
        client.buffer_from_host(&self.bytes, plugin_dtype(self.ty.dtype), &self.ty.dims, device).unwrap()
    }
}

fn plugin_dtype(dtype: DType) -> pjrt::DType {
    match dtype {
        DType::Pred => pjrt::DType::Pred,
        DType::S8 => pjrt::DType::S8,
        DType::S16 => pjrt::DType::S16,
        DType::S32 => pjrt::DType::S32,
        DType::S64 => pjrt::DType::S64,
        DType::U8 => pjrt::DType::U8,
        DType::U16 => pjrt::DType::U16,
        DType::U32 => pjrt::DType::U32,
        DType::U64 => pjrt::DType::U64,
        DType::F16 => pjrt::DType::F16,
        DType::BF16 => pjrt::DType::BF16,
        DType::F32 => pjrt::DType::F32,
        DType::F64 => pjrt::DType::F64,
        DType::F8E4M3FN => pjrt::DType::F8E4M3FN,
        DType::F4E2M1FN => pjrt::DType::F4E2M1FN,
        DType::F8E8M0FNU => pjrt::DType::F8E8M0FNU,
    }
}

/// The devices a row runs on.
#[derive(Clone, Debug)]
pub(crate) enum Spread {
    One,
    /// One copy of the program per device.
    Replicas,
    /// One program, partitioned over a mesh by its shardings.
    Mesh(Mesh),
}

type Build = Box<dyn Fn(&Module, &Func, &[Value]) -> Vec<Value>>;

pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) spread: Spread,
    /// Per device, the inputs.
    pub(crate) inputs: Vec<Vec<Tensor>>,
    pub(crate) build: Build,
    /// Per device, the results.
    pub(crate) want: Vec<Vec<Tensor>>,
}

/// A row on one device.
pub(crate) fn row(
    name: &str,
    inputs: &[Tensor],
    build: impl Fn(&Func, &[Value]) -> Vec<Value> + 'static,
    want: &[Tensor],
) -> Row {
    Row {
        name: name.to_owned(),
        spread: Spread::One,
        inputs: vec![inputs.to_vec()],
        build: Box::new(move |_, f, values| build(f, values)),
        want: vec![want.to_vec()],
    }
}

impl Row {
    /// Build, compile, run and compare; the text goes to `texts` once the program has run.
    pub(crate) fn run(&self, client: &Client, texts: &mut String) -> Result<(), String> {
        let module = Module::new("row");
        if let Spread::Mesh(mesh) = &self.spread {
            module.mesh(mesh.clone());
        }
        let f = module.main();
        let types: Vec<Type> = match &self.spread {
            // With a mesh, the inputs given are one device's, and the program is told of the whole by the row.
            Spread::Mesh(_) => Vec::new(),
            _ => self.inputs[0].iter().map(|input| input.ty.clone()).collect(),
        };
        let args: Vec<Value> =
            types.iter().enumerate().map(|(at, ty)| f.input(&format!("x{at}"), ty.clone())).collect();
        let results = (self.build)(&module, &f, &args);
        if !results.is_empty() {
            let names: Vec<String> = (0..results.len()).map(|at| format!("y{at}")).collect();
            let named: Vec<(&str, Value)> = names.iter().map(String::as_str).zip(results).collect();
            f.ret(&named);
        }
        let program = module.finish().map_err(|error| error.to_string())?;
        let options = match &self.spread {
            Spread::One => CompileOptions::default(),
            Spread::Replicas => {
                CompileOptions { num_replicas: self.inputs.len(), ..CompileOptions::default() }
            }
            Spread::Mesh(_) => CompileOptions::sharded_over(client.devices()),
        };
        let executable =
            client.compile(&program.text, &options).map_err(|error| format!("{error}\n{}", program.text))?;
        let devices: Vec<&Device> = executable.devices().collect();
        let buffers: Vec<Vec<Buffer>> = self
            .inputs
            .iter()
            .zip(&devices)
            .map(|(inputs, device)| inputs.iter().map(|input| input.upload(client, device)).collect())
            .collect();
        let lent: Vec<Vec<&Buffer>> = buffers.iter().map(|list| list.iter().collect()).collect();
        let outputs =
            executable.execute_sharded(&lent).map_err(|error| format!("{error}\n{}", program.text))?;
        for (device, (outputs, want)) in outputs.iter().zip(&self.want).enumerate() {
            if outputs.len() != want.len() {
                return Err(format!("{} results, not {}", outputs.len(), want.len()));
            }
            for (at, (output, want)) in outputs.iter().zip(want).enumerate() {
                let mut bytes = vec![0; output.size_bytes()];
                output.to_host(&mut bytes).map_err(|error| error.to_string())?;
                let ty = Type::new(want.ty.dtype, output.dims());
                let same_dtype = output.dtype() == plugin_dtype(want.ty.dtype);
                let got = Tensor { ty, bytes };
                if !same_dtype || !got.agrees(want) {
                    let (got, want) = (got.show(), want.show());
                    return Err(format!(
                        "device {device}, result {at}: got {got}, want {want}\n{}",
                        program.text
                    ));
                }
            }
        }
        texts.push_str(&program.text);
        Ok(())
    }
}
