"""Hashes of chat templates that are known to be harmless. Written by scripts/known_templates; do not edit.

From llama.cpp's models folder in llama-cpp-python 0.3.36: SHA-256 of a template without the white space around it.
"""

from typing import Final

KNOWN_TEMPLATES: Final = frozenset(
    (
        # Apertus-8B-Instruct.jinja
        "dea688e9f24a339a0d2504f6840852adbcedb082373172a0b82ca2c55996768d",
        # Apriel-1.6-15b-Thinker-fixed.jinja
        "86bc625842f60e1a5a8a3a9fc0dd3c9775db0ba31c12cde65e239f37959116d1",
        # Bielik-11B-v3.0-Instruct.jinja
        "a30b8c4531dda19196f35fb95ab84110dd8357acbd75eea3776c5543a70db5a9",
        # ByteDance-Seed-OSS.jinja
        "3f9e0dc4adeb8032287d0129dc75b6298fee8698a52ab41e863dbc89929330d3",
        # Cohere2MoE.jinja
        "d8366efb9f07c571da620ce6a924594fc52c80273a0fbb46a38b643972df95fd",
        # CohereForAI-c4ai-command-r-plus-tool_use.jinja
        "aa9ef691d4049f109496f3ce9e2bd022946c16d50e35dd94f3bd740031433946",
        # CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja
        "cc60b553279347d83df761f5dc55b4b2fb66bc1fa9a33e219911c13c11552fac",
        # GLM-4.6.jinja
        "e6e2ddfb13f8aef529a869e362f74743725c0919b8675139b93c0cb1623796c8",
        # GLM-4.7-Flash.jinja
        "d63ad536c3c81880043e22ec7fd08db42b4d8fb7c89c7138bc562bfa25281375",
        # GigaChat3-10B-A1.8B.jinja
        "bbbf2de800b645dfe032b1d85e1d6479d78fd82d38d4af0d8d5bb2dacacd20d6",
        # GigaChat3.1-10B-A1.8B.jinja
        "304f0d64aa3ba30ee85c281befdeb0e5b32aed232b06dee1752310daa1208a4b",
        # HuggingFaceTB-SmolLM3-3B.jinja
        "cbc1d50f777ec029b33f53b23d7a224cceb65bcc8c7fac54946dbb56514e4d1e",
        # Kimi-K2-Instruct.jinja
        "02e91795d2270374161c7063c9b1d084bb8cb3fb04b1ae977cf0e2953bdbbf92",
        # Kimi-K2-Thinking.jinja
        "4027d478e682204ecc53bb42cd60402338dcac3c9312c32335865fcaf59cb1e8",
        # Kimi-K3.jinja
        "f0c33f4b63ef8403f3dd16e10917440251ba16743c2a36d31675ac04b0ad1a1e",
        # LFM2-8B-A1B.jinja
        "2294f49b51a0b9a1b0194add3f124237b5bd986599f43180eec49bba4de01365",
        # LFM2.5-8B-A1B.jinja
        "6d65c8804847ad74eea912dd7eca3dc1cf7a457b53a77f47d841a14121910963",
        # LFM2.5-Instruct.jinja
        "f05bf4b967dc993bdc7a2fe6e43759ee218eb0eb340d68b063e1c4f8ad148176",
        # MiMo-VL.jinja
        "e7fa3f870aabfc1c9cadf448926fee2bc3e0e4c2546edb2b7a8b933313607057",
        # MiniMax-M1.jinja
        "e1790d8fbe1c587e6fc385e2a712363f86faf52ae1fb1fcbfc5ded3eb1fae70a",
        # MiniMax-M2.jinja
        "a3e05b110e2d1ccf5373f2d2a09f8e2e6c7fc48247c8cb6cab5160a462dc2209",
        # MiniMax-M3.jinja
        "c56d1f3ab70881b0e2ed8f51fa6de435d37b84d6c804ebb19a0ec4986fa5ffa9",
        # Mistral-Small-3.2-24B-Instruct-2506.jinja
        "d990bccdaaa20611e261434bf60bce767b03d8ee1f1d9b5cd0742b1cc96066b9",
        # NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja
        "43a92aacc2e169bb37055e4d8b0df31edfdc8657d8c387fcf98254cb246e626a",
        # NVIDIA-Nemotron-Nano-v2.jinja
        "52ae8e50fa083e63a0a5726eeffc85502089b82064aceb1bddf0366f7317b3f8",
        # NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja
        "ce62e308475b364e1fc76699dccbddeb9ac08344f90d59719dba86a9922834d9",
        # Qwen-QwQ-32B.jinja
        "94c6035b4f0eb905c95e2b7d8dace8547abca03f7fe3e441ba8a6388b1941272",
        # Qwen-Qwen2.5-7B-Instruct.jinja
        "55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a",
        # Qwen-Qwen3-0.6B.jinja
        "87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5",
        # Qwen3-Coder.jinja
        "eae48a3307931acb10a6fce475a36b711709672ea79ee1a9bc52f083d8b0a2af",
        # Qwen3.5-4B.jinja
        "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715",
        # Reka-Edge.jinja
        "546b04dba74993efae8f9da3ba08e29f437f5ac3f4e40b5cb9a4de5901a841df",
        # Spark2.5.jinja
        "c88f16f22024c5c5975a275b1168a711eef23fed681ebc51ed493fc13efeab72",
        # StepFun3.5-Flash.jinja
        "3a7cb642bf35cb4106cd3895147d8fcded3be856ad56cf6c88510aec879c2427",
        # deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja
        "dd2675619a64a449cdcdd2b93e605a0a50764cee41e344f244752bc93643936c",
        # deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja
        "bbe594884b44d740667ee65a70bc8d333a565eab3d63ea59f291ea73ada84ba6",
        # deepseek-ai-DeepSeek-V3.1.jinja
        "d9f5f351b276cf9e81d009db08830db7d38e94927aecd09a7beb43e2aafee94e",
        # deepseek-ai-DeepSeek-V3.2.jinja
        "53b9683b3653cec369829a4e6b27e1be65c81c903a47c4f1478ce19388a2baef",
        # deepseek-ai-DeepSeek-V4-Flash-0731.jinja
        "8b6f730567ea3e0a994ce80ac79c18a4d49716e821fd13ad7a2c061b712e3520",
        # deepseek-ai-DeepSeek-V4.jinja
        "f8b442fab67e75b3aa468334b5cdda671003b852ffd71f23cb23377d31d9c7be",
        # fireworks-ai-llama-3-firefunction-v2.jinja
        "5f259f602c593bdc4ee6f461bd3d6ebb30f7001cc2826d763e6d4a46656cd4d6",
        # ggml-vocab-gemma-4.gguf
        "58c66fdee4afa29786fa0925a4c3659c8ebc28a2db93da6ae479d7d5886ce48f",
        # ggml-vocab-phi-3.gguf
        "268b6082ceb7176dc6ed80557a2f7837f9f0339592fbee677d405a553af15f88",
        # ggml-vocab-qwen2.gguf
        "af9c0233881b083b52ff773580215222b5440ac3d0beeeca99b76329b048f8db",
        # google-gemma-2-2b-it.jinja
        "ecd6ae513fe103f0eb62e8ab5bfa8d0fe45c1074fa398b089c93a7e70c15cfd6",
        # google-gemma-4-31B-it-interleaved.jinja
        "df900edd2fcee5defc268bee887666c43c976d973bb3e87355b52423a651bf91",
        # google-gemma-4-31B-it.jinja
        "1d35a24a2a63cc600c0cab43628a6df4cd3318e959b03307cf5f9f7e29ecf783",
        # ibm-granite-granite-3.3-2B-Instruct.jinja
        "d0657ba05651bd2134160e7a9fbe40f1aa51ecb6bc2724618e34b04466291f87",
        # ibm-granite-granite-4.0.jinja
        "9524df67b77a7b25a2dfee898f75b316a157eb9d855b51e32aeac79d7c8a83ce",
        # ibm-granite-granite-4.1.jinja
        "fed2756d2d24e127b951dcf139d0b03ab7db8ef23a456128ebc9c2db4901d476",
        # inclusionai-ling-3.0-flash.jinja
        "b4ab3a1c8f748e6f874d9aea102333efe7ab82528e8ab81c2eb155851e8705c6",
        # llama-cpp-deepseek-r1.jinja
        "e0d5e227f0aedba8bc36d9173d4f814b6b9bc8bafa3e50d53fa0071567f90102",
        # llama-cpp-rwkv-world.jinja
        "e70723034f0928096207d99b2ec4678950361f290f5341c017d957f88b196935",
        # meetkai-functionary-medium-v3.1.jinja
        "2fc9dbfaea552f864b4b8cdf9d17401e9a49cbda199498531f137eb0ec5ae1d8",
        # meetkai-functionary-medium-v3.2.jinja
        "5c7c96c27cfecf3418411d1ebd0d11d691ab6bd2155bb38dacc62250fe47c3c8",
        # meta-llama-Llama-3.1-8B-Instruct.jinja
        "93c0e9aa3629bbd77e68dbc0f5621f6e6b23aa8d74b932595cdb8d64684526d7",
        # meta-llama-Llama-3.2-3B-Instruct.jinja
        "d82792f95932f1c9cef5c4bd992f171225e3bf8c7b609b4557c9e1ec96be819f",
        # microsoft-Phi-3.5-mini-instruct.jinja
        "78d976a442bcde2f0be15aafbb8e3050e1104f86732266f68403251b89982a90",
        # mistralai-Ministral-3-14B-Reasoning-2512.jinja
        "31b50c917746ef1c2611c2fef122d3ebee690aca5748ab37832734f9ad375da1",
        # mistralai-Mistral-Nemo-Instruct-2407.jinja
        "e7deee034838db2bfc7487788a3013d8a307ab69f72f3c54a85f06fd76007d4e",
        # moonshotai-Kimi-K2.jinja
        "aab20feb9bc6881f941ea649356130ffbc4943b3c2577c0991e1fba90de5a0fc",
        # muse-glimmer.jinja
        "6cd0e94d9b489fdb9a000743791f20e7e52b62c1e5cbb66fcc91c6716595223a",
        # openai-gpt-oss-120b.jinja
        "a4c9919cbbd4acdd51ccffe22da049264b1b73e59055fa58811a99efbd7c8146",
        # openbmb-MiniCPM5-1B.jinja
        "86c78150a71c4c5b597cb8571c0d48b9a5c10f89cd54c02e02343ceb0bac5c0a",
        # poolside-Laguna-S-2.1.jinja
        "444819b8ad4612870827ac05b9147fe9e3344d3850cae8c2790898fc514099ff",
        # poolside-Laguna-XS-2.1.jinja
        "c64086c5feaef448e1b94da54bf018333e29e506be3772c1cb41f60cb13e4888",
        # poolside-Laguna-XS.2.jinja
        "dadad29ff28c38064a91d928e758992e5f69d8e5002ee301c1c707d940ac0802",
        # tencent-Hy3.jinja
        "84437b9746423f042920c15289ac84d4eba7a50a11ebc05e8b414c460f814873",
        # unsloth-Apriel-1.5.jinja
        "156dd2c74e961f059aca24cc7b5a34f81715ed06762181c6f02155bfe78ca0c7",
        # unsloth-mistral-Devstral-Small-2507.jinja
        "039a4710e2aabaa79e85a233fa3daa4fbc030a4a8dc218cb7f34fb0c4b8c13b1",
        # upstage-Solar-Open-100B.jinja
        "c2e6220e74d32601bc99eeba3ce6caf69576080d18e2c33f93e560f6035ce1e3",
    )
)
