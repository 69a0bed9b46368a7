"""Identifiers of interfaces, and of what DXCore calls attributes of adapters."""

from __future__ import annotations

from typing import Final

from onnxplug_directml.abi.types import GUID

IID_IUnknown: Final = GUID("00000000-0000-0000-c000-000000000046")

IID_IDXGIFactory4: Final = GUID("1bc6ea02-ef36-464f-bf0c-21ca39e5168a")
IID_IDXGIFactory6: Final = GUID("c1b6694f-ff09-44a9-b03c-77900a0a1d17")
IID_IDXGIAdapter1: Final = GUID("29038f61-3839-4626-91fd-086879011a05")
IID_IDXGIAdapter3: Final = GUID("645967a4-1392-4310-a798-8053ce3e93fd")

IID_IDXCoreAdapterFactory: Final = GUID("78ee5945-c36e-4b13-a669-005dd11c0f06")
IID_IDXCoreAdapterList: Final = GUID("526c7776-40e9-459b-b711-f32ad76dfc28")
IID_IDXCoreAdapter: Final = GUID("f0db4c7f-fe5a-42a2-bd62-f2a6cf6fc83e")

IID_ID3D12Device: Final = GUID("189819f1-1db6-4b57-be54-1821339b85f7")
IID_ID3D12CommandQueue: Final = GUID("0ec870a6-5d7e-4c22-8cfc-5baae07616ed")
IID_ID3D12CommandAllocator: Final = GUID("6102dee4-af59-4b09-b999-b44d73f09b24")
IID_ID3D12CommandList: Final = GUID("7116d91c-e7e4-47ce-b8c6-ec8168f437e5")
IID_ID3D12GraphicsCommandList: Final = GUID("5b160d0f-ac1b-4185-8ba8-b3ae42a5a455")
IID_ID3D12DescriptorHeap: Final = GUID("8efb471d-616c-4f49-90f7-127bb763fa51")
IID_ID3D12Fence: Final = GUID("0a753dcf-c4d8-4b91-adf6-be5a60d95a76")
IID_ID3D12Resource: Final = GUID("696442be-a72e-4059-bc79-5b5c98040fad")
IID_ID3D12Debug: Final = GUID("344488b7-6846-474b-b989-f027448245e0")

IID_IDMLDevice1: Final = GUID("a0884f9a-d2be-4355-aa5d-5901281ad1d2")
IID_IDMLOperator: Final = GUID("26caae7a-3081-4633-9581-226fbe57695d")
IID_IDMLDispatchable: Final = GUID("dcb821a8-1039-441e-9f1c-b1759c2f3cec")
IID_IDMLCompiledOperator: Final = GUID("6b15e56a-bf5c-4902-92d8-da3a650afea4")
IID_IDMLOperatorInitializer: Final = GUID("427c1113-435c-469c-8676-4d5dd072f813")
IID_IDMLBindingTable: Final = GUID("29c687dc-de74-4e3b-ab00-1168f2fc3cfc")
IID_IDMLCommandRecorder: Final = GUID("e6857a76-2e3e-4fdd-bff4-5d2ba10fb453")
IID_IDMLDebugDevice: Final = GUID("7d6f3ac9-394a-4ac3-92a7-390cc57a8217")

DXCORE_ADAPTER_ATTRIBUTE_D3D12_GRAPHICS: Final = GUID(
    "0c9ece4d-2f6e-4f01-8c96-e89e331b47b1"
)
DXCORE_ADAPTER_ATTRIBUTE_D3D12_CORE_COMPUTE: Final = GUID(
    "248e2800-a793-4724-abaa-23a6de1be090"
)
DXCORE_ADAPTER_ATTRIBUTE_D3D12_GENERIC_ML: Final = GUID(
    "b71b0d41-1088-422f-a27c-0250b7d3a988"
)
DXCORE_HARDWARE_TYPE_ATTRIBUTE_GPU: Final = GUID("b69eb219-3ded-4464-979f-a00bd4687006")
DXCORE_HARDWARE_TYPE_ATTRIBUTE_NPU: Final = GUID("d46140c4-add7-451b-9e56-06fe8c3b58ed")
