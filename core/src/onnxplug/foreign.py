"""What ONNX Runtime has by names that mean nothing here, or something of another name.

Read only when such a name is used.
"""

from __future__ import annotations

from typing import Final


def _table(text: str) -> dict[str, str | None]:
    """Names, each with its default after ``=`` if a value holds anyway."""
    words = (word.partition("=") for word in text.split())
    return {name: value if equals else None for name, equals, value in words}


SESSION_ENTRIES: Final = _table("""
ep.context_source_model_path ep.enable_weightless_ep_context_nodes=0
ep.enable_weightless_mode
mlas.disable_kleidiai=0 mlas.enable_gemm_fastmath_arm64_bfloat16=0
mlas.kleidiai.conv_igemm_max_work mlas.nchwc_depthwise_sliding
mlas.nchwc_pointwise_conv_max_input_channel_batch mlas.qnbit.force_fp32
mlas.use_lut_gemm=0
optimization.constant_folding_max_output_size_in_bytes
optimization.enable_cast_chain_elimination=0
optimization.enable_gelu_approximation=0 optimization.enable_memory_optimizer
optimization.enable_memory_probe_recompute_config
optimization.memory_optimizer_config optimization.minimal_build_optimizations
session.collect_node_memory_stats_to_file session.compile_only=0
session.debug_layout_transformation=0 session.disable_aot_function_inlining=0
session.disable_double_qdq_remover=0 session.disable_prepacking=0
session.disable_qdq_constant_folding=0 session.disable_quant_qdq=0
session.dynamic_block_base=0 session.enable_cpu_mem_arena=1
session.enable_dq_matmulnbits_fusion=0 session.enable_mem_pattern=1
session.enable_moe_expert_counting=0 session.enable_moe_expert_statistics=0
session.enable_profiling=0 session.enable_quant_qdq=1
session.enable_quant_qdq_cleanup=0
session.enable_saved_runtime_optimizations session.execution_mode
session.external_data_loader.chunk_bytes session.external_data_loader.min_size_bytes
session.external_data_loader.pinned_memory_bytes session.external_data_loader.threads
session.force_spinning_stop=0 session.function_expansion_byte_limit
session.function_expansion_node_limit session.gqa_value_layout
session.graph_optimization_level session.graph_optimizations_loop_level=1
session.inter_op.allow_spinning=1 session.inter_op.spin_backoff_max
session.inter_op.spin_duration_us session.inter_op_num_threads
session.intra_op.allow_spinning=1 session.intra_op.spin_backoff_max
session.intra_op.spin_duration_us session.intra_op_thread_affinities=
session.kernel_dispatch_policy session.layer_assignment_settings=
session.load_model_format=ONNX session.log_id session.log_severity_level
session.log_verbosity_level session.max_shape_override
session.moe.offload.allow_file_backing session.moe.offload.async_max_tokens
session.moe.offload.budget_group session.moe.offload.cpu_execution
session.moe.offload.cpu_threads session.moe.offload.derived_cache_dir
session.moe.offload.device_expert_bytes session.moe.offload.device_working_bytes
session.moe.offload.gpu_budget_bytes session.moe.offload.gpu_device_mem_limit
session.moe.offload.host_expert_bytes session.moe.offload.host_working_bytes
session.moe.offload.min_expert_weight session.moe.offload.mode
session.moe.offload.node_overrides session.moe.offload.pinned_bytes
session.moe.offload.placement session.moe.offload.popularity_file
session.moe.offload.prefill_wave_experts session.moe.offload.reserve_device_bytes
session.moe.offload.skip_tail_cold_only session.moe.offload.skip_zero_cold_doorbell
session.moe.offload.source_root session.moe.offload.tail_substitution_min_rank
session.moe.offload.tail_substitution_threshold session.moe_expert_counter_alpha
session.moe_expert_counter_beta session.moe_expert_counter_state_file
session.name_based_layer_assignment= session.node_partition_config_file=
session.optimized_model_filepath session.prepack.enable_parallel
session.qdq_matmulnbits_accuracy_level=4 session.qdq_matmulnbits_block_size=32
session.qdqisint8allowed=0 session.resource_cuda_partitioning_settings=
session.save_external_prepacked_constant_initializers=0
session.save_model_format=ONNX session.set_denormal_as_zero=0
session.strict_shape_type_inference=0 session.strict_workspace_verification
session.use_deterministic_compute session.use_device_allocator_for_initializers=0
session.use_env_allocators=0 session.use_external_initializer_file_buffers_directly=0
session.use_ort_model_bytes_directly=0 session.use_ort_model_bytes_for_initializers=0
session.use_per_session_threads session.x64quantprecision=0
""")
"""Config entries of sessions that have no effect here, with their defaults."""

PASSES: Final = _table("""
CastElimination=eliminate CommonSubexpressionElimination=duplicates
ConstantFolding=fold EliminateDropout=eliminate EliminateIdentity=eliminate
EliminateSlice=eliminate ExpandElimination=eliminate NoopElimination=eliminate
TransposeOptimizer=transposes UnsqueezeElimination=eliminate
Avx2WeightS8ToU8Transformer BiasDropoutFusion BiasGeluFusion BiasSkipLayerNormFusion
BiasSoftmaxFusion CastChainElimination CastFloat16Transformer ClipQuantRewrite
ConstantSharing ConvActivationFusion ConvAddActivationFusion
ConvAddFusion ConvBNFusion ConvMulFusion DQMatMulNBitsFusion DivMulFusion
DoubleQDQPairsRemover DynamicQuantizeMatMulFusion EmbedLayerNormFusion
EnsureUniqueDQForNodeUnit FastGeluFusion FreeDimensionOverrideTransformer
FuseFp16InitializerToFp32NodeTransformer FuseReluClip GatherSliceToSplitFusion
GatherToSliceFusion GeluApproximation GeluFusionL1 GeluFusionL2
GemmActivationFusion GemmSumFusion GemmTransposeFusion GqaValueLayoutTransformer
GroupQueryAttentionFusion GroupQueryAttentionPreNormFusion InsertCastTransformer
LabelEncoderFusion LayerNormFusionL1 LayerNormFusionL2
Level1_RuleBasedTransformer Level2_RuleBasedTransformer MatMulActivationFusion
MatMulAddFusion MatMulIntegerToFloatFusion MatMulNBitsFusion MatMulNBitsMlpFusion
MatMulNBitsQLoRAFusion MatMulNBitsQkvFusion MatMulScaleFusion
MatMul_BatchNormalization_Fusion MatmulTransposeFusion MemcpyTransformer
NchwcTransformer NhwcTransformer NotWhereFusion Pad_Fusion
PreShapeNodeElimination QDQFinalCleanupTransformer
QDQPropagationTransformer QDQS8ToU8Transformer QDQSelectorActionTransformer
QuickGeluFusion ReluQuantRewrite RemoveDuplicateCastTransformer ReshapeFusion
SimplifiedLayerNormFusion SkipLayerNormFusion SliceConcatToSpaceToDepthFusion
SwiGluFusion WeightBiasQuantization WhereDummyDq
""")
"""ONNX Runtime's optimizers, and the passes here that do their work; ``None`` where
there is none, so that it is left out already."""
