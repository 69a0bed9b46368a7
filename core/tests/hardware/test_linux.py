"""Linux, on trees of files like those of real machines."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from onnxplug.ep import DeviceType, HardwareDevice
from onnxplug.hardware import linux


class Machine:
    """A root to build up; links are what sysfs has, down to their direction."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def file(self, path: str, text: str = "") -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def link(self, path: str, target: Path) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    def cpu(self, text: str) -> None:
        self.file("proc/cpuinfo", text)

    def pci(
        self,
        address: str,
        vendor: str,
        device: str,
        kind: str = "0x030000",
        *,
        card: int | None = None,
        accel: int | None = None,
        driver: str = "",
        files: Mapping[str, str] | None = None,
    ) -> Path:
        """A PCI device, with the DRM or accel device that its driver made."""
        folder = f"sys/devices/pci0000:00/{address}"
        self.file(f"{folder}/vendor", vendor + "\n")
        self.file(f"{folder}/device", device + "\n")
        self.file(f"{folder}/class", kind + "\n")
        for name, text in (files or {}).items():
            self.file(f"{folder}/{name}", text)
        if driver:
            home = self.root / "sys/bus/pci/drivers" / driver
            home.mkdir(parents=True, exist_ok=True)
            self.link(f"{folder}/driver", home)
        self.link(f"sys/bus/pci/devices/{address}", self.root / folder)
        self._children(folder, card, accel)
        return self.root / folder

    def platform(
        self,
        name: str,
        uevent: str,
        *,
        card: int | None = None,
        accel: int | None = None,
    ) -> None:
        """A device on no bus that can be scanned, from the device tree."""
        folder = f"sys/devices/platform/{name}"
        self.file(f"{folder}/uevent", uevent)
        self._children(folder, card, accel)

    def _children(self, folder: str, card: int | None, accel: int | None) -> None:
        for kind, prefix, index in (("drm", "card", card), ("accel", "accel", accel)):
            if index is None:
                continue
            child = self.root / folder / kind / f"{prefix}{index}"
            child.mkdir(parents=True)
            (child / "device").symlink_to("../..")
            self.link(f"sys/class/{kind}/{prefix}{index}", child)

    def find(self) -> list[HardwareDevice]:
        return linux.find(self.root)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


INTEL = """\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model name\t: 13th Gen Intel(R) Core(TM) i7-13700K
flags\t\t: fpu vme avx2

processor\t: 1
vendor_id\t: GenuineIntel
model name\t: 13th Gen Intel(R) Core(TM) i7-13700K
"""

AMD = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD Ryzen 7 8840U\n"

PI_4 = """\
processor\t: 0
BogoMIPS\t: 108.00
Features\t: fp asimd evtstrm crc32 cpuid
CPU implementer\t: 0x41
CPU architecture: 8
CPU part\t: 0xd08

Hardware\t: BCM2835
Model\t\t: Raspberry Pi 4 Model B Rev 1.4
"""


def kinds(devices: list[HardwareDevice]) -> list[DeviceType]:
    return [device.type for device in devices]


def test_a_desktop_with_an_integrated_and_a_discrete_gpu(machine: Machine) -> None:
    machine.cpu(INTEL)
    machine.pci("0000:00:1f.3", "0x8086", "0x7a50", "0x040300")  # sound
    # the kernel numbers cards as their drivers load, not as they sit on the bus
    machine.pci("0000:01:00.0", "0x10de", "0x2684", card=0, driver="nvidia")
    machine.pci("0000:00:02.0", "0x8086", "0xa780", card=1, driver="i915")
    machine.file("sys/class/drm/card1-HDMI-A-1/status", "connected")
    machine.file("sys/class/drm/renderD128/dev", "226:128")
    machine.file("sys/class/drm/version", "drm 1.1.0 20060810")
    machine.file(
        "proc/driver/nvidia/gpus/0000:01:00.0/information",
        "Model: \t\t NVIDIA GeForce RTX 4090\nIRQ:   \t\t 178\nGPU UUID: \t GPU-?\n",
    )

    assert machine.find() == [
        HardwareDevice(
            type=DeviceType.CPU,
            vendor="Intel",
            vendor_id=0x8086,
            metadata={"Description": "13th Gen Intel(R) Core(TM) i7-13700K"},
        ),
        HardwareDevice(
            type=DeviceType.GPU,
            vendor="Intel",
            vendor_id=0x8086,
            device_id=0xA780,
            metadata={"card_idx": "1", "Discrete": "0", "pci_bus_id": "0000:00:02.0"},
        ),
        HardwareDevice(
            type=DeviceType.GPU,
            vendor="NVIDIA",
            vendor_id=0x10DE,
            device_id=0x2684,
            metadata={
                "card_idx": "0",
                "Discrete": "1",
                "pci_bus_id": "0000:01:00.0",
                "Description": "NVIDIA GeForce RTX 4090",
            },
        ),
    ]


def test_an_amd_processor_with_graphics_and_npu(machine: Machine) -> None:
    machine.cpu(AMD)
    gpu = machine.pci("0000:c4:00.0", "0x1002", "0x15bf", card=0, driver="amdgpu")
    (gpu / "mem_info_vram_total").write_text(f"{4 << 30}\n")  # set in the firmware
    (gpu / "hwmon/hwmon5").mkdir(parents=True)
    (gpu / "hwmon/hwmon5/in1_label").write_text("vddnb\n")
    machine.pci("0000:c5:00.1", "0x1022", "0x1502", "0x118000", accel=0)

    cpu, gpu_device, npu = machine.find()
    assert (cpu.vendor, cpu.vendor_id) == ("AMD", 0x1022)
    assert (gpu_device.vendor, gpu_device.vendor_id) == ("AMD", 0x1002)
    assert gpu_device.metadata["Discrete"] == "0"
    assert npu == HardwareDevice(
        type=DeviceType.NPU,
        vendor="AMD",
        vendor_id=0x1022,
        device_id=0x1502,
        metadata={"accel_idx": "0", "pci_bus_id": "0000:c5:00.1"},
    )


def test_an_intel_laptop_with_an_npu(machine: Machine) -> None:
    machine.cpu(INTEL)
    machine.pci("0000:00:02.0", "0x8086", "0x7d55", card=1, driver="i915")
    machine.pci("0000:00:0b.0", "0x8086", "0x7d1d", "0x120000", accel=0)
    machine.file("sys/class/accel/accel_controlD0/dev", "261:0")
    assert kinds(machine.find()) == [DeviceType.CPU, DeviceType.GPU, DeviceType.NPU]


@pytest.mark.parametrize(
    ("address", "vendor", "files", "discrete"),
    [
        ("0000:03:00.0", "0x8086", {}, "1"),  # Arc
        ("0000:00:02.0", "0x8086", {}, "0"),
        ("0000:00:05.0", "0x8086", {}, None),  # handed to a virtual machine
        ("0000:03:00.0", "0x1002", {"mem_info_vram_vendor": "samsung\n"}, "1"),
        ("0000:03:00.0", "0x1002", {"mem_info_vram_total": "536870912\n"}, "0"),
        ("0000:03:00.0", "0x1002", {"mem_info_vram_total": "8589934592\n"}, None),
        ("0000:03:00.0", "0x1002", {"mem_info_vram_total": "much\n"}, None),
        ("0000:03:00.0", "0x1002", {}, None),
        ("0000:03:00.0", "0x10de", {}, "1"),
        ("0000:03:00.0", "0x1ed5", {}, None),
    ],
)
def test_discrete_is_said_only_when_it_can_be_told(
    machine: Machine,
    address: str,
    vendor: str,
    files: dict[str, str],
    discrete: str | None,
) -> None:
    machine.pci(address, vendor, "0x1234", card=0, files=files)
    gpu = machine.find()[1]
    assert gpu.metadata.get("Discrete") == discrete


def test_a_container_without_drm(machine: Machine) -> None:
    machine.cpu(AMD)
    machine.pci("0000:00:00.0", "0x8086", "0x0d57", "0x060000")
    machine.pci("0001:00:00.0", "0x10de", "0x2330", "0x030200", driver="nvidia")
    machine.pci("0000:5e:00.0", "0x10de", "0x2330", "0x030200", driver="nvidia")
    machine.pci("0000:65:00.0", "0x1002", "0x74a1", "0x120000", driver="amdgpu")
    machine.pci("0000:66:00.0", "0x8086", "0x7d1d", "0x120000")  # an NPU, no driver

    _, *gpus = machine.find()
    assert [gpu.metadata for gpu in gpus] == [
        {"Discrete": "1", "pci_bus_id": "0000:5e:00.0"},
        {"pci_bus_id": "0000:65:00.0"},
        {"Discrete": "1", "pci_bus_id": "0001:00:00.0"},
    ]


def test_a_server_whose_only_drm_device_is_its_console(machine: Machine) -> None:
    machine.cpu(INTEL)
    machine.pci("0000:02:00.0", "0x1a03", "0x2000", card=0, driver="ast")
    machine.pci("0000:5e:00.0", "0x10de", "0x20b2", "0x030200", driver="nvidia")
    assert [gpu.vendor for gpu in machine.find()[1:]] == ["NVIDIA"]


@pytest.mark.parametrize(
    ("vendor", "device"),
    [
        ("0x1234", "0x1111"),
        ("0x1af4", "0x1050"),
        ("0x15ad", "0x0405"),
        ("0x1414", "0x5353"),
        ("0x1d0f", "0x1111"),
        ("0x19e5", "0x1711"),
    ],
)
def test_a_virtual_machine_has_no_gpu(
    machine: Machine, vendor: str, device: str
) -> None:
    machine.cpu(INTEL)
    machine.pci("0000:00:02.0", vendor, device, card=0)
    # virtio's DRM device hangs below the PCI device, as a virtio device
    machine.platform("virtio0", "DRIVER=virtio_gpu\nMODALIAS=virtio:d1v1\n", card=1)
    assert kinds(machine.find()) == [DeviceType.CPU]


def test_huawei_makes_gpus_too(machine: Machine) -> None:
    machine.pci("0000:81:00.0", "0x19e5", "0xd100", card=0)
    assert machine.find()[1].vendor == "Huawei"


def test_gpus_given_to_virtual_machines_are_not_ours(machine: Machine) -> None:
    machine.pci("0000:01:00.0", "0x10de", "0x2684", driver="vfio-pci")
    machine.pci("0000:02:00.0", "0x10de", "0x2684", driver="pci-stub")
    machine.pci("0000:03:00.0", "0x10de", "0x2684", driver="nvidia")
    machine.pci(
        "0000:03:00.1", "0x10de", "0x2684", files={"physfn": "a link on real machines"}
    )
    buses = [gpu.metadata["pci_bus_id"] for gpu in machine.find()[1:]]
    assert buses == ["0000:03:00.0"]


@pytest.mark.parametrize("nvidia", [True, False])
def test_wsl_shows_one_gpu(machine: Machine, nvidia: bool) -> None:
    machine.cpu(INTEL)
    machine.file("dev/dxg")
    machine.pci("5582:00:00.0", "0x1414", "0x008e", "0x030200", driver="dxgkrnl")
    machine.pci("9d9c:00:00.0", "0x1414", "0x008e", "0x030200", driver="dxgkrnl")
    machine.platform("vgem", "DRIVER=vgem\n", card=0)
    if nvidia:
        machine.file("usr/lib/wsl/lib/libnvidia-ml.so.1")

    _, gpu = machine.find()
    assert gpu.metadata["wsl"] == "1"
    assert "Windows host" in gpu.metadata["Description"]
    if nvidia:
        assert (gpu.vendor, gpu.vendor_id) == ("NVIDIA", 0x10DE)
        assert gpu.metadata["Discrete"] == "1"
    else:
        assert (gpu.vendor, gpu.vendor_id) == ("Microsoft", 0x1414)
        assert "Discrete" not in gpu.metadata


def test_a_raspberry_pi_4(machine: Machine) -> None:
    machine.cpu(PI_4)
    machine.platform(
        "gpu", "DRIVER=vc4-drm\nOF_COMPATIBLE_0=brcm,bcm2711-vc5\n", card=1
    )
    machine.platform(
        "fec00000.v3d",
        "DRIVER=v3d\nOF_NAME=gpu\nOF_COMPATIBLE_0=brcm,2711-v3d\nOF_COMPATIBLE_N=1\n",
        card=0,
    )
    cpu, gpu = machine.find()
    assert (cpu.vendor, cpu.vendor_id, cpu.metadata) == ("ARM", 0x13B5, {})
    assert gpu == HardwareDevice(
        type=DeviceType.GPU,
        vendor="Broadcom",
        vendor_id=0x14E4,
        metadata={
            "card_idx": "0",
            "Discrete": "0",
            "Description": "brcm,2711-v3d",
        },
    )


def test_a_raspberry_pi_3_has_screen_and_gpu_in_one(machine: Machine) -> None:
    machine.platform("soc:gpu", "DRIVER=vc4-drm\n", card=0)
    assert [gpu.vendor for gpu in machine.find()[1:]] == ["Broadcom"]


def test_a_rockchip_board_with_an_npu(machine: Machine) -> None:
    machine.platform("display-subsystem", "DRIVER=rockchip-drm\n", card=0)
    machine.platform("fb000000.gpu", "DRIVER=panthor\n", card=1)
    npu = "DRIVER=rocket\nOF_COMPATIBLE_0=rockchip,rk3588-rknn-core\n"
    machine.platform("fdab0000.npu", npu, accel=0)
    machine.platform("fdac0000.npu", "", accel=1)  # no driver has it
    assert [(device.type, device.vendor) for device in machine.find()[1:]] == [
        (DeviceType.GPU, "ARM"),
        (DeviceType.NPU, "Rockchip"),
    ]


def test_a_jetson_has_an_nvidia_gpu_that_is_not_discrete(machine: Machine) -> None:
    machine.platform("17000000.gpu", "DRIVER=nvgpu\n", card=1)
    gpu = machine.find()[1]
    assert (gpu.vendor_id, gpu.device_id) == (0x10DE, 0)
    assert gpu.metadata == {"card_idx": "1", "Discrete": "0"}


@pytest.mark.parametrize(
    ("cpuinfo", "vendor", "vendor_id"),
    [
        ("vendor_id : HygonGenuine\n", "Hygon", 0x1D94),
        ("vendor_id :   Shanghai  \n", "Zhaoxin", 0x1D17),
        ("vendor_id       : IBM/S390\n# processors    : 4\n", "IBM", 0x1014),
        ("vendor_id : NobodyKnows!\n", "NobodyKnows!", 0),
        ("CPU implementer : 0x61\n", "Apple", 0x106B),
        ("CPU implementer : 0xc0\n", "Ampere", 0x1DEF),
        ("CPU implementer : 0x51\n", "Qualcomm", 0x4D4F4351),
        ("CPU implementer : 0xfe\n", "", 0),
        ("CPU implementer : none\n", "", 0),
        ("processor : 0\n\nCPU implementer : 0x48\n", "Huawei", 0x19E5),
        ("no colon here", "", 0),
        ("", "", 0),
    ],
)
def test_makers_of_processors(
    machine: Machine, cpuinfo: str, vendor: str, vendor_id: int
) -> None:
    machine.cpu(cpuinfo)
    [cpu] = machine.find()
    assert (cpu.type, cpu.vendor, cpu.vendor_id) == (DeviceType.CPU, vendor, vendor_id)


def test_power_says_its_name_elsewhere(machine: Machine) -> None:
    machine.cpu("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n")
    assert machine.find()[0].metadata["Description"] == "POWER9, altivec supported"


def test_an_empty_root_has_a_cpu(machine: Machine) -> None:
    assert machine.find() == [HardwareDevice(type=DeviceType.CPU)]


@pytest.mark.parametrize("name", ["vendor", "device"])
@pytest.mark.parametrize("text", ["", "\n", "nonsense", "0xfffff", "-1", "0x10de 0x1"])
def test_malformed_ids_leave_the_device_out(
    machine: Machine, name: str, text: str
) -> None:
    folder = machine.pci("0000:01:00.0", "0x10de", "0x2684", card=0)
    npu = machine.pci("0000:02:00.0", "0x8086", "0x7d1d", "0x120000", accel=0)
    for each in (folder, npu):
        (each / name).write_text(text)
    assert kinds(machine.find()) == [DeviceType.CPU]


def test_a_device_that_has_fallen_off_the_bus_is_left_out(machine: Machine) -> None:
    machine.pci("0000:01:00.0", "0xffff", "0xffff", card=0)
    assert kinds(machine.find()) == [DeviceType.CPU]


def test_bytes_that_are_no_text_do_no_harm(machine: Machine) -> None:
    folder = machine.pci("0000:01:00.0", "0x10de", "0x2684", card=0)
    (folder / "product_name").write_bytes(b"\xff\xfe\x00")
    (folder / "class").write_bytes(b"\xff")
    (machine.root / "proc").mkdir()
    (machine.root / "proc/cpuinfo").write_bytes(b"\xff\xfe: \x00\n" * 5000)
    assert kinds(machine.find()) == [DeviceType.CPU, DeviceType.GPU]


def test_files_where_folders_belong_do_no_harm(machine: Machine) -> None:
    machine.file("sys/class/drm", "")
    machine.file("sys/class/accel", "")
    machine.file("sys/bus/pci/devices", "")
    (machine.root / "proc/cpuinfo").mkdir(parents=True)
    assert kinds(machine.find()) == [DeviceType.CPU]


def test_odd_names_and_broken_links_do_no_harm(machine: Machine) -> None:
    for name in ("card", "card-1", "card0x", "card٣", "card0-DP-1"):
        machine.file(f"sys/class/drm/{name}/device/uevent", "DRIVER=v3d\n")
    machine.link("sys/class/drm/card7", machine.root / "gone")
    loop = machine.root / "sys/class/drm/card8"
    loop.symlink_to(loop)
    machine.link("sys/bus/pci/devices/0000:01:00.0", machine.root / "gone")
    machine.file("sys/bus/pci/devices/not-an-address/class", "0x030000")
    assert kinds(machine.find()) == [DeviceType.CPU]


def test_refused_reads_do_no_harm(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.cpu(INTEL)
    machine.pci("0000:01:00.0", "0x10de", "0x2684", card=0)

    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", refuse)
        patch.setattr("os.listdir", refuse)
        found = machine.find()
    assert found == [HardwareDevice(type=DeviceType.CPU)]


def test_what_is_left_out_is_logged_quietly(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.pci("0000:00:02.0", "0x1af4", "0x1050", card=0)
    machine.pci("0000:01:00.0", "junk", "0x2684", card=1)
    machine.platform("vkms", "DRIVER=vkms\n", card=2)
    with caplog.at_level(logging.DEBUG, logger="onnxplug"):
        machine.find()
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}
    assert {record.name for record in caplog.records} == {"onnxplug.hardware"}
    for word in ("0000:00:02.0", "0000:01:00.0", "vkms"):
        assert word in caplog.text


def test_two_cards_of_one_device_are_one_gpu(machine: Machine) -> None:
    folder = machine.pci("0000:01:00.0", "0x10de", "0x2684", card=3)
    second = folder / "drm/card1"
    second.mkdir()
    (second / "device").symlink_to("../..")
    machine.link("sys/class/drm/card1", second)
    [gpu] = machine.find()[1:]
    assert gpu.metadata["card_idx"] == "1"


def test_order_is_that_of_the_bus(machine: Machine) -> None:
    addresses = ["10000:e1:00.0", "0000:9a:00.0", "0000:3b:00.0", "0000:3b:00.1"]
    for card, address in enumerate(addresses):
        machine.pci(address, "0x10de", "0x2684", card=card)
    machine.platform("17000000.gpu", "DRIVER=nvgpu\n", card=9)
    found = machine.find()
    assert [gpu.metadata.get("pci_bus_id") for gpu in found[1:]] == [
        "0000:3b:00.0",
        "0000:3b:00.1",
        "0000:9a:00.0",
        "10000:e1:00.0",
        None,
    ]
    assert found == machine.find()


def test_a_big_server_takes_milliseconds(machine: Machine) -> None:
    machine.cpu(INTEL * 128)
    for bus in range(16):
        for slot in range(16):
            machine.pci(f"0000:{bus:02x}:{slot:02x}.0", "0x8086", "0x1", "0x088000")
    for card in range(8):
        machine.pci(f"0000:a{card}:00.0", "0x10de", "0x2330", "0x030200", card=card)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        assert len(machine.find()) == 9
        times.append(time.perf_counter() - start)
    assert min(times) < 0.25  # fifty times what it takes
